// Reports about failed ranks.
#include <tests/support/catch_plain.h>

#include <dlfcn.h>

#include <nlohmann/json.hpp>

#include <common/symbols.h>
#include <common/text.h>
#include <tests/launcher/rank_ends.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::failure_unit_test {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

auto read_error(const std::string& text) {
  const TemporaryFolder folder;
  write_text(folder / "error.json", text);
  return read_error_file(folder / "error.json");
}

TEST_CASE(
    "the root of a failure is the first that is no consequence",
    "[unit]") {
  CHECK_FALSE(root_cause({ended(0, 0, 1), ended(1, 0, 2)}));
  CHECK(root_cause({ended(0, kExit3, 20), ended(1, SIGKILL, 10)}) == 1U);
  CHECK(root_cause({stopped(0), ended(1, kExit3, 950)}) == 1U);

  auto victim = ended(0, kExit3, 10);
  victim.error = error("rank 1 failed", 5);
  victim.error->is_consequence = true;
  const auto origin = ended(1, kExit3, 30);
  CHECK(root_cause({victim, origin}) == 1U);
  CHECK(root_cause({victim, stopped(1)}) == 0U); // better than none

  auto told_by_lines = ended(0, kExit3, 10);
  told_by_lines.last_lines = {"x", "[pair.cc:547] Connection closed by peer"};
  CHECK(root_cause({told_by_lines, origin}) == 1U);
  told_by_lines.state = RankState();
  told_by_lines.state.ended(SIGSEGV, 1s);
  CHECK(root_cause({told_by_lines, origin}) == 0U); // a crash is its own reason

  // The program caught ddp's error before it failed.
  auto aborted = ended(0, SIGABRT, 10);
  auto rethrown = aborted;
  rethrown.error = error("training failed", 5);
  for (RankEnd* end : {&aborted, &rethrown}) {
    CHECK(root_cause({*end, origin}) == 0U);
    end->failed_by_another = true;
    CHECK(root_cause({*end, origin}) == 1U);
  }

  // The error comes before the end.
  auto slow = ended(0, kExit3, 100);
  slow.error = error("first", 7);
  CHECK(root_cause({slow, ended(1, kExit3, 50)}) == 0U);
  // A rank that was stopped while it was unwinding.
  auto unwinding = stopped(2);
  unwinding.error = error("first of all", 3);
  CHECK(root_cause({slow, ended(1, kExit3, 50), unwinding}) == 2U);
}

TEST_CASE("only a library's words tell of another rank", "[unit]") {
  for (const std::string text :
       {"[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] writev "
        "[127.0.0.1]:41: Broken pipe",
        "c10::DistNetworkError: sendBytes failed: Connection reset by peer",
        "a:1:2 [0] misc/socket.cc:52 NCCL WARN recv: Connection reset by peer",
        "[n0][[5,1],0][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] "
        "mca_btl_tcp_frag_recv: readv failed: Connection reset by peer (104)",
        "c10::DistBackendError: rank 1 (process 7) has left the group",
        "rank 1 (process 7) has ended"}) {
    CAPTURE(text);
    CHECK(tells_of_another(text));
  }
  for (const std::string text :
       {"std::runtime_error: reading a.bin: Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "loader (process 12) has ended",
        "warm-up (phase 1) has ended"}) {
    CAPTURE(text);
    CHECK_FALSE(tells_of_another(text));
  }
}

TEST_CASE("error files of both languages are read", "[unit]") {
  const auto ours = read_error(
      R"({"message": {"message": "boom", "extraInfo": {"timestamp": "17",
          "timestamp_ns": "17000000005", "consequence": "true", "step": "12",
          "activity": "barrier",
          "py_callstack": "#0 _ZN3net7forwardEv+0x12 (train+0x3)\n#1 main"}}})");
  REQUIRE(ours);
  CHECK(ours->message == "boom");
  CHECK(ours->time_ns == 17000000005);
  CHECK(ours->is_consequence);
  CHECK(ours->step == 12);
  CHECK(ours->activity == "barrier");
  CHECK(ours->stack == "#0 net::forward()+0x12 (train+0x3)\n#1 main");

  const auto pythons =
      read_error(R"({"message": {"message": "ValueError: no", "extraInfo":
          {"py_callstack": "Traceback", "timestamp": "17"}}})");
  REQUIRE(pythons);
  CHECK(pythons->message == "ValueError: no");
  CHECK_FALSE(pythons->is_consequence);
  CHECK_FALSE(pythons->step);
  CHECK(pythons->time_ns > 1000000000); // the file's own

  const auto short_one = read_error(R"({"message": "x"})");
  REQUIRE(short_one);
  CHECK(short_one->message == "x");
}

[[gnu::noinline]] int some_function(int argument) {
  return argument + static_cast<int>(getpid());
}

TEST_CASE("frames that a program could not name are named", "[unit]") {
  const std::string self = fs::read_symlink("/proc/self/exe");
  const auto address = reinterpret_cast<char*>(&some_function);
  Dl_info info{};
  REQUIRE(dladdr(address, &info) != 0);
  REQUIRE(some_function(1) > 1);
  std::ostringstream offset;
  offset << std::hex << address - static_cast<char*>(info.dli_fbase) + 1;
  const std::string place = "(launcher_tests+0x" + offset.str() + ")";
  const std::string frame = "#0 ?? " + place;
  const std::string named = name_frames(frame + "\n#1 main", self);
  CHECK_THAT(named, Has("some_function"));
  CHECK_THAT(named, Has("+0x1 " + place + "\n#1 main"));
  // Frames of other files, and addresses beyond the end, do not change.
  for (const std::string text :
       {"#0 ?? (libc.so.6+0x12)",
        "#0 ?? (launcher_tests+0xfffffffffff0)",
        "#0 ?? (launcher_tests+0xzz)",
        "text",
        ""}) {
    CHECK(name_frames(text, self) == text);
  }
  CHECK(name_frames(frame, "") == frame);
  CHECK(name_frames(frame, "/no/launcher_tests") == frame);

  // Uses what is left of a damaged file, and does not read beyond its end.
  const TemporaryFolder folder;
  const std::string copy = folder / "launcher_tests";
  fs::copy_file(self, copy);
  for (uintmax_t size = fs::file_size(copy); size > 0; size /= 2) {
    fs::resize_file(copy, size);
    CHECK(name_frames(frame, copy).size() >= frame.size());
  }
}

TEST_CASE("what is no error file is none", "[unit]") {
  const TemporaryFolder folder;
  CHECK_FALSE(read_error_file(""));
  CHECK_FALSE(read_error_file(folder / "none"));
  CHECK_FALSE(read_error_file(folder.path())); // a folder
  for (const char* text :
       {"", "{", "[]", "null", "{\"other\": 1}", "\x80\x81"}) {
    CAPTURE(text);
    CHECK_FALSE(read_error(text));
  }
  CHECK(read_error(R"({"message": {"extraInfo": 3}})"));
  CHECK_FALSE(
      read_error("{\"message\": \"" + std::string(2 << 20, 'x') + "\"}"));
}

TEST_CASE("an error file that nests deep is none", "[unit]") {
  for (const size_t depth : {size_t{1000}, size_t{500000}}) {
    for (const char* part :
         {R"({"message": @})",
          R"({"message": {"message": @}})",
          R"({"message": {"message": "x", "extraInfo":
                                {"step": @}}})"}) {
      std::string text = part;
      text.replace(
          text.find('@'), 1, std::string(depth, '[') + std::string(depth, ']'));
      CHECK_FALSE(read_error(text));
    }
  }
  // A message of others that is not a text is reported unchanged.
  const auto file = read_error(R"({"message": [[1], {"a": 2}]})");
  REQUIRE(file);
  CHECK(file->message == R"([[1],{"a":2}])");
}

TEST_CASE("a report is read at a glance", "[unit]") {
  auto root = ended(2, kExit3, 10);
  root.step = 1840;
  root.error = error("c10::Error: out of memory\nsecond line", 5);
  root.error->stack = "#0 train()\n#1 main";
  root.last_lines = {"not shown, since there is a reason"};
  auto dead = stopped(4);
  dead.state = RankState();
  dead.state.killed();
  dead.state.ended(SIGKILL, 2s);
  JobReport report =
      report_of({stopped(0), stopped(1), root, ended(3, 0, 4), dead});
  report.max_restarts = 2;
  report.restarts = 2;
  report.folder = "/logs/run";
  report.file = "/logs/report.json";
  CHECK(
      report_text(report) ==
      "rank 2 (pid 102) exited with code 3 after 1.5 s, after step "
      "1840\n"
      "  reason: c10::Error: out of memory\n"
      "          second line\n"
      "  stack: #0 train()\n"
      "         #1 main\n"
      "  others: rank 3 had ended with code 0; ranks 0-1 were stopped; rank 4 "
      "did not stop and had to be killed\n"
      "  restarts: 2 of 2 were used\n"
      "  logs: /logs/run\n"
      "  report: /logs/report.json");
  report.reason = StopReason::kNone;
  CHECK(report_text(report).empty());
}

TEST_CASE("a report has each reason once, whichever rank says it", "[unit]") {
  std::vector<RankEnd> ends;
  for (int rank = 0; rank < 7; ++rank) {
    ends.push_back(ended(rank, kExit3, 10 + rank));
    ends.back().error = error(
        "c10::Error: rank " + std::to_string(rank) + " of 7 on host a-" +
            std::to_string(rank) + ": " + (rank < 3 ? "no file" : "no memory"),
        5 + rank);
  }
  ends[2].state = stopped(2).state;
  ends[5].error->is_consequence = true;
  ends[6].error.reset();
  CHECK(
      report_text(report_of(ends)) ==
      "rank 0 (pid 100) exited with code 3 after 1.5 s\n"
      "  reason: c10::Error: rank 0 of 7 on host a-0: no file\n"
      "  others: ranks 1-2 failed for the same reason; ranks 3-6 failed after "
      "it");
}

TEST_CASE("the report of abort() has what the rank wrote", "[unit]") {
  std::vector<RankEnd> ends;
  for (int rank = 0; rank < 3; ++rank) {
    ends.push_back(ended(rank, SIGABRT, 10 + rank));
    ends.back().error = error("Signal 6 (Aborted)", 5 + rank);
    ends.back().error->stack = "#0 abort()";
    ends.back().last_lines = {
        "epoch 1", rank < 2 ? "a.cpp:7: Assertion `a' failed." : "double free"};
  }
  CHECK(
      report_text(report_of(ends)) ==
      "rank 0 (pid 100) was killed by signal 6 (Aborted) after 1.5 s\n"
      "  reason: Signal 6 (Aborted)\n"
      "  stack: #0 abort()\n"
      "  stderr: epoch 1\n"
      "          a.cpp:7: Assertion `a' failed.\n"
      "  others: rank 1 failed for the same reason; rank 2 failed after it");
}

TEST_CASE("a reason that programs have caught is told once", "[unit]") {
  std::vector<RankEnd> ends;
  for (int rank = 0; rank < 4; ++rank) {
    ends.push_back(ended(rank, kExit3, 10 + rank));
    ends.back().last_lines = {
        "epoch 1",
        rank < 3 ? "the options are not the same on all ranks:"
                 : "rank 3 of 4 on host a: no memory",
        "  rank 1 has options (static_graph 1)"};
  }
  ends[2].last_lines.emplace_back("giving up"); // maybe for another reason
  CHECK(
      report_text(report_of(ends)) ==
      "rank 0 (pid 100) exited with code 3 after 1.5 s\n"
      "  reason: the options are not the same on all ranks:\n"
      "            rank 1 has options (static_graph 1)\n"
      "  others: rank 1 failed for the same reason; ranks 2-3 failed after it");
}

TEST_CASE("texts are compared without the rank that says them", "[unit]") {
  CHECK(without_speaker("rank 0 of 3 on host a: lost") == "lost");
  CHECK(without_speaker("rank 12 of 345 on host a.b-c: x: y") == "x: y");
  CHECK(
      without_speaker("error: ddp::PeerError: rank 1 of 3 on host a: lost") ==
      "error: ddp::PeerError: lost");
  CHECK(
      without_speaker("c10::DistBackendError: rank 1 of 3 on host a: x\ny") ==
      "c10::DistBackendError: x\ny");
  // A mention of another rank belongs to the text.
  for (const std::string text :
       {"",
        "lost",
        "c10::Error: ",
        "rank 0 of 3 on host a failed: lost",
        "barrier failed: rank 0 of 3 on host a: lost",
        "c10::Error: of rank 0 of 3 on host a: lost",
        "rank of 3 on host a: lost",
        "rank 0 of 3 on host : lost",
        "rank 0 of 3 on host a",
        "rank 0 of 3: lost"}) {
    CAPTURE(text);
    CHECK(without_speaker(text) == text);
  }
}

TEST_CASE("a report says how far a rank was", "[unit]") {
  const auto first_line = [](int64_t step, const std::string& activity) {
    auto root = ended(0, kExit3, 1);
    root.step = step;
    root.activity = activity;
    const std::string text = report_text(report_of({root}));
    return text.substr(text.find("1.5 s") + 5);
  };
  CHECK(first_line(0, "").empty());
  CHECK(first_line(0, "barrier") == ", in barrier");
  CHECK(first_line(0, "after barrier") == ", after barrier");
  CHECK(first_line(3, "after step 3") == ", after step 3");
  CHECK(
      first_line(3, "bucket 1 of 2, step 4") ==
      ", after step 3, in bucket 1 of 2, step 4");
}

TEST_CASE("a long error is cut, and said to be", "[unit]") {
  auto root = ended(0, kExit3, 1);
  std::string message = "line 0";
  for (int i = 1; i < 30; ++i) {
    message += "\nline " + std::to_string(i);
  }
  root.error = error(message, 1);
  const std::string text = report_text(report_of({root}));
  CHECK_THAT(text, Has("line 11\n          (18 more)"));
  CHECK(text.find("line 12") == std::string::npos);
}

TEST_CASE("the last frames of Python's long stack are shown", "[unit]") {
  auto root = ended(0, kExit3, 1);
  root.error = error("ValueError: no", 1);
  root.error->stack = "Traceback (most recent call last):\n";
  for (int i = 1; i < 30; ++i) {
    root.error->stack += "line " + std::to_string(i) + "\n";
  }
  const std::string text = report_text(report_of({root}));
  CHECK_THAT(text, Has("  stack: (18 more)\n         line 18\n"));
  CHECK_THAT(text, Has("         line 29"));
}

TEST_CASE("the report is JSON", "[unit]") {
  auto root = ended(1, SIGSEGV, 10);
  root.error = error("not \xff UTF-8", 5);
  root.last_lines = {"a \"quoted\" line"};
  const auto value =
      nlohmann::json::parse(report_json(report_of({stopped(0), root})));
  CHECK(value["schema"] == 1);
  CHECK(value["outcome"] == "failed");
  CHECK(value["exit_code"] == 3);
  CHECK(value["root"] == 1);
  CHECK(value["command"] == nlohmann::json({"./train"}));
  const auto& first = value["ranks"][0];
  CHECK(first["end"] == "stopped by ddprun");
  CHECK(first["message"].is_null());
  const auto& second = value["ranks"][1];
  CHECK(second["end"] == "killed");
  CHECK(second["signal"] == SIGSEGV);
  CHECK(second["exit_code"] == 128 + SIGSEGV);
  CHECK(second["stderr"][0] == "a \"quoted\" line");
  CHECK(second["duration_s"] == 1.5);
}

TEST_CASE("the report's file is whole or old", "[unit]") {
  const TemporaryFolder folder;
  JobReport report = report_of({ended(0, kExit3, 1)});
  report.file = folder / "report.json";
  std::ofstream(report.file) << "old";
  CHECK(write_report(report).empty());
  std::ifstream file(report.file);
  CHECK(nlohmann::json::parse(file)["root"] == 0);
  CHECK(fs::status(report.file).permissions() == fs::perms(0600));
  report.file = folder / "none/report.json";
  CHECK_THAT(write_report(report), Has("No such file"));
  CHECK(folder.names().size() == 1);
}

} // namespace ddp::test::failure_unit_test
