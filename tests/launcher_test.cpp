// Parts of the launcher that need no process.
#include <tests/support/catch_plain.h>

#include <common/scheduler/rank_environment.h>
#include <launcher/affinity/cpu_binding.h>
#include <launcher/output/line_splitter.h>
#include <launcher/output/output_multiplexer.h>
#include <launcher/output/screen.h>

namespace ddp::test::launcher_test {

using Texts = std::vector<std::string>;

// The emitted pieces; "|" marks a piece that does not end its line.
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
  CHECK(split({"20%\r\r\n"}) == Texts{"20%"});
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

TEST_CASE("pieces of different lines never mix", "[unit]") {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  {
    Screen screen(
        out.write_end.get(), err.write_end.get(), std::chrono::seconds(10));
    screen.add(Stream::kOut, 0, "[0] ", "a", false);
    screen.add(Stream::kOut, 0, "[0] ", "b", false);
    screen.flush();
    screen.add(Stream::kErr, 2, "[1] ", "error", true);
    screen.add(Stream::kOut, 1, "[1] ", "other", true);
    screen.add(Stream::kOut, 0, "[0] ", "c", true);
    screen.set_progress("not at a pipe");
    screen.flush();
  }
  CHECK(read_all(std::move(out)) == "[0] ab\n[1] other\n[0] c\n");
  CHECK(read_all(std::move(err)) == "[1] error\n");
}

TEST_CASE("ranks see the GPUs that were chosen", "[unit]") {
  JobEnvironment job;
  job.extra = {{"CUDA_VISIBLE_DEVICES", "1,3"}};
  job.own_devices = {"1", "3"};
  RankEnvironment own;
  own.local_rank = 1;
  const char* const none[] = {nullptr};
  const Texts all = worker_environment(rank_variables(job, own), none);
  CHECK(has(all, "CUDA_VISIBLE_DEVICES=1,3"));
  CHECK(has(all, "LOCAL_RANK=1"));
  job.virtual_local_rank = true;
  const Texts one = worker_environment(rank_variables(job, own), none);
  CHECK(has(one, "CUDA_VISIBLE_DEVICES=3"));
  CHECK(has(one, "LOCAL_RANK=0"));
  CHECK(has(one, "RANK=1"));
}

TEST_CASE("OpenMP threads are shared out fairly", "[unit]") {
  CHECK(omp_threads_per_rank(4, 16, nullptr) == 4);
  CHECK(omp_threads_per_rank(4, 2, nullptr) == 1);
  CHECK(omp_threads_per_rank(1, 16, nullptr) == 0);
  CHECK(omp_threads_per_rank(4, 16, "3") == 0);
}

TEST_CASE("one rank under a quota starts no more threads than that", "[unit]") {
  CHECK(omp_threads_per_rank(1, 4, nullptr, true) == 4);
  CHECK(omp_threads_per_rank(3, 4, nullptr, true) == 1);
  CHECK(omp_threads_per_rank(1, 4, "3", true) == 0);
}

TEST_CASE(
    "ranks that are bound share only the CPUs of their places",
    "[unit]") {
  const auto place = [](size_t first, size_t count) {
    RankPlace result;
    for (size_t cpu = first; cpu < first + count; ++cpu) {
      CPU_SET(cpu, &result.cpus);
    }
    return result;
  };
  CHECK(usable_cpus({place(0, 4), place(4, 4)}) == 8);
  CHECK(usable_cpus({place(0, 4), place(4, 12)}) == 8); // 4 each
  CHECK(usable_cpus({place(0, 8), place(0, 8), place(8, 2)}) == 6);
  CHECK(usable_cpus({place(0, 6), place(0, 6), place(0, 6)}) == 6);
  CHECK(usable_cpus({place(0, 1), place(0, 1), place(0, 1)}) == 1);
}

} // namespace ddp::test::launcher_test
