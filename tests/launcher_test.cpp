// The launcher's parts that need no process.
#include <tests/support/catch_plain.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <launcher/launch_error.h>
#include <launcher/line_splitter.h>
#include <launcher/options.h>
#include <launcher/output_pump.h>
#include <launcher/processors.h>
#include <launcher/screen.h>
#include <launcher/worker_environment.h>

using namespace ddp;
using Texts = std::vector<std::string>;

namespace {

LaunchOptions parse(const Texts& arguments) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

std::string usage_error(const Texts& arguments) {
  try {
    parse(arguments);
  } catch (const LaunchError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "no error";
}

// Pieces as emitted; "|" marks where one does not end its line.
Texts split(const Texts& chunks) {
  Texts pieces;
  const auto emit = [&](std::string_view text, bool ends_line) {
    pieces.push_back(std::string(text) + (ends_line ? "" : "|"));
  };
  LineSplitter splitter;
  for (const std::string& chunk : chunks) {
    splitter.feed(chunk, emit);
  }
  splitter.finish(emit);
  return pieces;
}

bool has(const Texts& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

bool has_name(const Texts& environment, const std::string& name) {
  return std::any_of(
      environment.begin(), environment.end(), [&](const std::string& each) {
        return each.rfind(name + "=", 0) == 0;
      });
}

std::string read_all(Pipe pipe) {
  pipe.write_end.reset();
  std::string text;
  char buffer[4096];
  for (ssize_t size;
       (size = read(pipe.read_end.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

} // namespace

TEST_CASE("options take dashes and underscores alike", "[unit]") {
  for (const Texts& form :
       {Texts{"--nproc-per-node", "3"},
        Texts{"--nproc_per_node", "3"},
        Texts{"--nproc-per-node=3"},
        Texts{"--nproc_per_node=3", "--no-python"},
        Texts{"--no_python", "--nproc-per-node", "3"}}) {
    Texts arguments = form;
    arguments.push_back("./train");
    const LaunchOptions options = parse(arguments);
    CHECK(options.nproc_per_node == 3);
    CHECK(options.command == Texts{"./train"});
  }
}

TEST_CASE("options have torchrun's defaults", "[unit]") {
  const LaunchOptions options = parse({"./train"});
  CHECK(options.nproc_per_node == 1);
  CHECK(options.grace == std::chrono::seconds(30));
  CHECK(options.master_addr == "127.0.0.1");
  CHECK(options.master_port == 0);
}

TEST_CASE("options end at the program", "[unit]") {
  const Texts program = {"./train", "--nproc-per-node", "9", "--", "--help"};
  Texts arguments = {"--grace", "0.25", "--master_port=29500"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  const LaunchOptions options = parse(arguments);
  CHECK(options.command == program);
  CHECK(options.nproc_per_node == 1);
  CHECK(options.grace == std::chrono::milliseconds(250));
  CHECK(options.master_port == 29500);
  CHECK(parse({"--", "--odd", "x"}).command == Texts{"--odd", "x"});
  CHECK(parse({"--", "--", "x"}).command == Texts{"--", "x"});
}

TEST_CASE("help and version are answers", "[unit]") {
  CHECK_THAT(parse({"--help"}).answer, ContainsSubstring("--nproc-per-node"));
  CHECK_THAT(parse({"--version"}).answer, ContainsSubstring("ddprun "));
}

TEST_CASE("wrong usage is told in one line", "[unit]") {
  for (const Texts& arguments :
       {Texts{},
        Texts{"--"},
        Texts{"--nproc-per-node", "2"},
        Texts{"--nproc-per-node"},
        Texts{"--nproc-per-node", "0", "x"},
        Texts{"--nproc-per-node", "-1", "x"},
        Texts{"--nproc-per-node", "two", "x"},
        Texts{"--nproc-per-node", "99999999999", "x"},
        Texts{"--nproc-per-node", "2", "--nproc-per-node", "3", "x"},
        Texts{"--grace", "-1", "x"},
        Texts{"--master-port", "65536", "x"},
        Texts{"--nonsense", "x"}}) {
    const std::string error = usage_error(arguments);
    CAPTURE(arguments);
    CHECK_THAT(error, ContainsSubstring("(see ddprun --help)"));
    CHECK(error.find('\n') == std::string::npos);
  }
}

TEST_CASE("ranks can follow the CPUs", "[unit]") {
  CHECK(
      parse({"--nproc-per-node", "cpu", "x"}).nproc_per_node ==
      available_cpus());
}

TEST_CASE("GPUs are counted as CUDA would show them", "[unit]") {
  const auto folder = std::filesystem::temp_directory_path() /
      ("ddprun-devices-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (const char* name :
       {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(folder / name) << "";
  }
  CHECK(visible_gpus(nullptr, folder) == 3);
  CHECK(visible_gpus("", folder) == 0);
  CHECK(visible_gpus("-1", folder) == 0);
  CHECK(visible_gpus("2,0", folder) == 2);
  CHECK(visible_gpus("0,7,1", folder) == 1);
  CHECK(visible_gpus("GPU-1f,MIG-22", folder) == 2);
  CHECK(visible_gpus(nullptr, folder / "none") == 0);
  std::filesystem::remove_all(folder);
}

TEST_CASE("lines are cut at newlines only", "[unit]") {
  CHECK(split({"one\ntwo\n"}) == Texts{"one", "two"});
  CHECK(split({"o", "ne", "\n", "\n", "tw", "o"}) == Texts{"one", "", "two"});
  CHECK(split({""}).empty());
  const std::string nul("a\0b", 3);
  CHECK(split({nul + "\n"}) == Texts{nul});
}

TEST_CASE("a carriage return starts the line over", "[unit]") {
  CHECK(split({"10%\r20%\r30%\n"}) == Texts{"30%"});
  CHECK(split({"10%\r", "20%", "\r", "\n"}) == Texts{"20%"});
  CHECK(split({"\r10%", "\r20%\n"}) == Texts{"20%"});
  CHECK(split({"10%\r20%\r"}) == Texts{"20%"});
  CHECK(split({"20%\rnext\n"}) == Texts{"next"});
  CHECK(split({"dos\r\nlines\r", "\n"}) == Texts{"dos", "lines"});
}

TEST_CASE("long lines come in pieces of whole characters", "[unit]") {
  const size_t limit = LineSplitter::kMaxPiece;
  const std::string full(limit, 'a');
  CHECK(split({full + "\n"}) == Texts{full});
  CHECK(split({full + "b\n"}) == Texts{full + "|", "b"});
  CHECK(split({full + "b", "\n"}) == Texts{full + "|", "b"});
  const std::string euro = "\xE2\x82\xAC"; // would lie across the limit
  const std::string almost(limit - 1, 'a');
  CHECK(split({almost + euro + "b\n"}) == Texts{almost + "|", euro + "b"});
  const std::string binary(2 * limit + 1, '\x80');
  const Texts pieces = split({binary});
  CHECK(pieces.size() == 3);
}

TEST_CASE("progress is fitted by columns", "[unit]") {
  CHECK(fit_to_columns("12345", 5) == "12345");
  CHECK(fit_to_columns("123456", 5) == "12345");
  const std::string euro = "\xE2\x82\xAC";
  CHECK(fit_to_columns(euro + euro + "x", 2) == euro + euro);
  CHECK(fit_to_columns("\x1b[31mab\x1b[0mc", 2) == "\x1b[31mab\x1b[0m");
  CHECK(fit_to_columns("\x1b[3", 2) == "\x1b[3");
}

TEST_CASE("pieces of different lines never mix", "[unit]") {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Screen screen(out.write_end.get(), err.write_end.get());
  screen.add(Stream::kOut, 0, "[0] ", "a", false);
  screen.add(Stream::kOut, 0, "[0] ", "b", false);
  screen.flush();
  screen.add(Stream::kErr, 2, "[1] ", "error", true);
  screen.add(Stream::kOut, 1, "[1] ", "other", true);
  screen.add(Stream::kOut, 0, "[0] ", "c", true);
  screen.set_progress(Stream::kOut, "not at a pipe");
  screen.flush();
  CHECK(read_all(std::move(out)) == "[0] ab\n[1] other\n[0] c\n");
  CHECK(read_all(std::move(err)) == "[1] error\n");
}

TEST_CASE("what pipes still hold at the end is written", "[unit]") {
  const int ranks = 200;
  Pipe out = make_pipe();
  std::vector<Pipe> pipes; // whose writing ends stay open
  {
    OutputPump pump(ranks, out.write_end.get(), out.write_end.get());
    for (int rank = 0; rank < ranks; ++rank) {
      pipes.push_back(make_pipe());
      write_all(pipes.back().write_end.get(), "whole\npart");
      pump.add(std::move(pipes.back().read_end), rank, Stream::kOut);
    }
  }
  std::istringstream lines(read_all(std::move(out)));
  Texts found;
  for (std::string line; std::getline(lines, line);) {
    found.push_back(line);
  }
  CHECK(found.size() == 2 * ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(has(found, "[" + std::to_string(rank) + "] part"));
  }
}

TEST_CASE("a rank's environment replaces an outer job's", "[unit]") {
  const char* const inherited[] = {
      "PATH=/bin",
      "RANK=7",
      "WORLD_SIZE=9",
      "DDP_STORE_FD=5",
      "DDP_TTY=1",
      "TORCHELASTIC_ERROR_FILE=/x",
      "EMPTY=",
      nullptr};
  JobEnvironment job;
  job.world_size = 2;
  job.master_addr = "127.0.0.1";
  job.master_port = 1234;
  job.run_id = "id";
  job.store_fd = 8;
  const Texts first = worker_environment(job, 0, inherited);
  CHECK(has(first, "RANK=0"));
  CHECK(has(first, "WORLD_SIZE=2"));
  CHECK(has(first, "PATH=/bin"));
  CHECK(has(first, "EMPTY="));
  CHECK(has(first, "DDP_STORE_FD=8"));
  CHECK_FALSE(has(first, "RANK=7"));
  CHECK_FALSE(has_name(first, "DDP_TTY"));
  CHECK_FALSE(has_name(first, "TORCHELASTIC_ERROR_FILE"));
  CHECK_FALSE(has_name(first, "OMP_NUM_THREADS"));
  job.at_terminal = true;
  CHECK(has(worker_environment(job, 0, inherited), "DDP_TTY=1"));
  const Texts second = worker_environment(job, 1, inherited);
  CHECK(has(second, "LOCAL_RANK=1"));
  CHECK_FALSE(has_name(second, "DDP_STORE_FD"));
  CHECK_FALSE(has_name(second, "DDP_TTY"));
}

TEST_CASE("OpenMP threads are shared out fairly", "[unit]") {
  CHECK(omp_threads_per_rank(4, 16, nullptr) == 4);
  CHECK(omp_threads_per_rank(4, 2, nullptr) == 1);
  CHECK(omp_threads_per_rank(1, 16, nullptr) == 0);
  CHECK(omp_threads_per_rank(4, 16, "3") == 0);
}
