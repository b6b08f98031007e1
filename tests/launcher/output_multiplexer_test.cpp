// The multiplexer, with pipes in this process.
#include <tests/support/catch_plain.h>

#include <common/text.h>
#include <launcher/output/sink.h>
#include <tests/launcher/multiplexer_fixture.h>

namespace ddp::test::output_multiplexer_test {

namespace fs = std::filesystem;

TEST_CASE("a full pipe of another user does not block", "[unit]") {
  if (geteuid() != 0) {
    skip("this needs root");
  }
  Pipe pipe = make_pipe();
  constexpr uid_t kNobody = 65534;
  REQUIRE(seteuid(kNobody) == 0); // which may not reopen it
  Sink sink(pipe.write_end.get());
  REQUIRE(seteuid(0) == 0);
  const std::string text(200'000, 'x');
  sink.append(text);
  std::vector<char> read_bytes(8192);
  size_t read_size = 0;
  while (read_size < text.size()) {
    REQUIRE(sink.write() == 0);
    const bool is_full = text.size() - read_size > 65536;
    CHECK(sink.blocked_fd() == (is_full ? pipe.write_end.get() : -1));
    const auto size =
        read(pipe.read_end.get(), read_bytes.data(), read_bytes.size());
    REQUIRE(size > 0);
    read_size += static_cast<size_t>(size);
  }
}

TEST_CASE("streams go into files as well, or alone", "[unit]") {
  const TemporaryFolder folder;
  OutputOptions options = files_in(folder);
  options.redirects.all = 2;
  options.tee.ranks[1] = 3;
  PumpTest test(options);
  for (int rank : {0, 1}) {
    for (Stream stream : {Stream::kOut, Stream::kErr}) {
      say(test.rank(rank, stream, 4),
          "10%\r20%\r" + std::to_string(rank) + "\npart");
    }
  }
  test.finish();
  const std::string raw = "10%\r20%\r";
  CHECK(split_lines(test.out.text()).size() == 4);
  CHECK(count_of(test.out.text(), "[0] 0\n") == 1);
  CHECK(count_of(test.out.text(), "[1] part\n") == 1);
  CHECK(test.err.text() == "[1] 1\n[1] part\n"); // --tee precedes --redirects
  CHECK(read_text(folder / "logs/attempt_4/0/stderr.log") == raw + "0\npart");
  CHECK(read_text(folder / "logs/attempt_4/1/stderr.log") == raw + "1\npart");
  CHECK(read_text(folder / "logs/attempt_4/1/stdout.log") == raw + "1\npart");
  CHECK_FALSE(fs::exists(folder / "logs/attempt_4/0/stdout.log"));
}

TEST_CASE("lines that contain a text go into a file of their own", "[unit]") {
  const TemporaryFolder folder;
  OutputOptions options = files_in(folder);
  options.tee.ranks = {{0, 1}, {1, 2}};
  options.shown_ranks = {1};
  options.stdout_filters = {"loss", "error"};
  PumpTest test(options);
  say(test.rank(0), "loss 1\nnothing\nan error\nlo");
  say(test.rank(1), "loss of a rank without files\n");
  say(test.rank(1, Stream::kErr), "loss on another stream\n");
  test.finish();
  CHECK(
      read_text(folder / "logs/attempt_0/filtered_stdout.log") ==
      "[0] loss 1\n[0] an error\n");
  CHECK_FALSE(fs::exists(folder / "logs/attempt_0/filtered_stderr.log"));
}

TEST_CASE("only chosen ranks are shown", "[unit]") {
  const TemporaryFolder folder;
  OutputOptions options = files_in(folder);
  options.shown_ranks = {1};
  options.tee.all = 3;
  PumpTest test(options);
  say(test.rank(0, Stream::kErr), "not shown\n");
  say(test.rank(1, Stream::kErr), "shown\n");
  test.drain();
  CHECK(test.multiplexer->last_lines(0) == Texts{"not shown"});
  test.finish();
  CHECK(test.err.text() == "[1] shown\n");
  CHECK(read_text(folder / "logs/attempt_0/0/stderr.log") == "not shown\n");
}

struct Said {
  int rank;
  std::string text;
  bool is_shown;
  int attempt = 0;
};

// Ranks print errors, one after the other, each followed by a separate line.
// `at_end` is ddprun's last message.
void check_shown(
    PumpTest& test,
    const std::vector<Said>& all,
    const std::string& at_end = "") {
  std::string expected;
  int number = 0;
  for (const Said& each : all) {
    const auto last = "#" + std::to_string(++number);
    say(test.rank(each.rank, Stream::kErr, each.attempt),
        each.text + last + "\n");
    test.err.until(last);
    for (const auto& line :
         split_lines((each.is_shown ? each.text : "") + last)) {
      expected += "[" + std::to_string(each.rank) + "] " + line + "\n";
    }
  }
  test.finish();
  CHECK(test.err.text() == expected + at_end);
}

TEST_CASE("an error of several ranks is shown once", "[unit]") {
  const TemporaryFolder folder;
  OutputOptions options = files_in(folder);
  options.tee.all = 2;
  PumpTest test(options);
  const std::string same = "error: c10::Error: no file\n  rank 1 has it\n";
  const std::string other = "error: c10::Error: no file\n  rank 2 has it\n";
  // Many ranks may print the same line of a program.
  const std::string own = "error: no file\n";
  check_shown(
      test,
      {{0, same, true},
       {1, same, false},
       {1, other, true},
       {0, same, true}, // the same rank again
       {1, same, true, 1}, // another attempt
       {0, own, true},
       {1, own, true}});
  for (const char* attempt : {"logs/attempt_0", "logs/attempt_1"}) {
    CHECK_THAT(read_text(folder / attempt + "/1/stderr.log"), Has(same + "#"));
  }
}

TEST_CASE(
    "a warning of ddp's is shown once, of a program's on each rank",
    "[unit]") {
  PumpTest test;
  const auto text_of = [](const std::string& time, const std::string& who) {
    return "[W1125 08:00:0" + time + " reducer.cpp:96] Warning: " + who +
        "the gradients are not averaged (function operator())\n";
  };
  check_shown(
      test,
      {{1, text_of("0.1", "ddp: "), true},
       {0, text_of("1.2", "ddp: "), false},
       {1, text_of("2.3", ""), true},
       {0, text_of("3.4", ""), true}},
      "ddprun: rank 0 has the same warning as rank 1: the gradients are not "
      "averaged (function operator())...\n");
}

TEST_CASE("an error is the same whichever rank says it", "[unit]") {
  PumpTest test;
  const auto text_of = [](const std::string& speaker, int other) {
    return "error: ddp::PeerError: rank " + speaker +
        ": barrier failed because rank " + std::to_string(other) +
        " of 3 on host a failed: no file\n";
  };
  const std::string first = "0 of 3 on host a";
  const std::string second = "2 of 3 on host node-7.cluster";
  check_shown(
      test,
      {{0, text_of(first, 1), true},
       {1, text_of(second, 1), false},
       {0, text_of(first, 2), true}, // because of another rank
       {1, text_of(second, 0), true}});
}

TEST_CASE("an error that a program catches is shown once", "[unit]") {
  const std::string lost =
      GENERATE("", "error: ", "train: ") + std::string("rank 2 of 3 on host a");
  PumpTest test;
  const std::string waited = lost + ": barrier failed: timed out after 8 s\n";
  const std::string differs =
      "error: the sampler differs between ranks: rank 0: 100; rank 1: 90\n";
  check_shown(
      test,
      {{0, waited, true},
       {1, waited, false},
       {1, differs, true},
       {0, differs, false},
       // A program's own lines.
       {0, "rank 2 is slow\n", true},
       {1, "rank 2 is slow\n", true}});
}

TEST_CASE("each attempt has streams of its own", "[unit]") {
  PumpTest test;
  Texts expected;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const FileDescriptor held = test.rank(1, Stream::kErr, attempt);
    CHECK(test.multiplexer->last_lines(1).empty());
    const std::string name = "attempt " + std::to_string(attempt);
    say(held, name + "\nlast words");
    CHECK_FALSE(readable(test.multiplexer->done_fd(), 0));
    test.drain(); // although the pipe is still open
    CHECK(test.multiplexer->last_lines(1) == Texts{name, "last words"});
    CHECK(write(held.get(), "x", 1) == -1); // it has no reader any more
    expected.insert(expected.end(), {"[1] " + name, "[1] last words"});
  }
  CHECK(test.multiplexer->last_lines(0).empty());
  test.finish();
  CHECK(split_lines(test.err.text()) == expected);
}

TEST_CASE("a pipe that has ended wakes nobody", "[unit]") {
  PumpTest test;
  Pipe pipe = make_pipe();
  const FileDescriptor copy(dup(pipe.read_end.get())); // as a fork makes
  test.multiplexer->add(std::move(pipe.read_end), {0, 0, Stream::kOut, 0});
  say(pipe.write_end, "part");
  pipe.write_end.reset();
  test.out.until("[0] part\n");
  const std::clock_t before = std::clock();
  CHECK_FALSE(readable(test.multiplexer->done_fd(), 300));
  CHECK(std::clock() - before < CLOCKS_PER_SEC / 10);
  test.finish();
}

TEST_CASE("messages come after what ranks wrote before", "[unit]") {
  PumpTest test;
  const FileDescriptor rank = test.rank(0, Stream::kErr);
  for (int i = 0; i < 300; ++i) {
    const std::string number = std::to_string(i);
    say(rank, number + "\n");
    test.multiplexer->message("ddprun: " + number + "\nsecond line");
  }
  test.finish();
  const std::string& text = test.err.text();
  for (int i = 0; i < 300; ++i) {
    const std::string number = std::to_string(i);
    const size_t line = text.find("[0] " + number + "\n");
    const size_t message = text.find("ddprun: " + number + "\nsecond line\n");
    REQUIRE(line < message);
    REQUIRE(message < text.size());
  }
}

TEST_CASE("a reader that does not read costs no memory", "[unit]") {
  const TemporaryFolder folder;
  OutputOptions options = files_in(folder);
  options.redirects.ranks[1] = 1;
  PumpTest test(options);
  const size_t much = 20'000'000;
  const FileDescriptor held = test.rank(0);
  const size_t taken = flood(held, much, 1000);
  CHECK(taken > 1'000'000);
  CHECK(taken < 2'000'000);
  // Everything else continues.
  CHECK(flood(test.rank(1), much) >= much);
  say(test.rank(0, Stream::kErr), "what went wrong\n");
  test.multiplexer->message("ddprun: news");
  test.err.until("ddprun: news\n");
  test.drain();
  CHECK(test.multiplexer->last_lines(0) == Texts{"what went wrong"});
  test.multiplexer->finish();
  CHECK_FALSE(readable(test.multiplexer->done_fd(), 100));
  const size_t expected = taken + 4 * taken / 4096; // with prefixes
  test.out.until_size(expected);
  CHECK(readable(test.multiplexer->done_fd(), kReadPatience));
  test.finish();
  CHECK(test.out.text().size() == expected);
  CHECK(fs::file_size(folder / "logs/attempt_0/1/stdout.log") >= much);
}

TEST_CASE("shared descriptors stay as they are", "[unit]") {
  PumpTest test;
  say(test.rank(0), "text\n");
  test.out.until("text");
  CHECK((fcntl(test.out_pipe.write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
  test.finish();
}

TEST_CASE("sockets are written without waiting", "[unit]") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  FileDescriptor ours(ends[0]);
  Reader reader{FileDescriptor(ends[1])};
  size_t taken = 0;
  {
    OutputMultiplexer multiplexer({}, kTwoRanks, ours.get(), ours.get());
    Pipe pipe = make_pipe();
    multiplexer.add(std::move(pipe.read_end), {0, 0, Stream::kOut, 0});
    taken = flood(pipe.write_end, 20'000'000, 1000);
    CHECK(taken < 3'000'000);
    multiplexer.drain(); // works, as no write waits
    CHECK(readable(multiplexer.done_fd(), kReadPatience));
    CHECK((fcntl(ours.get(), F_GETFL) & O_NONBLOCK) == 0);
    multiplexer.message("ddprun: the end");
    reader.until("ddprun: the end\n");
  }
  CHECK(reader.text().size() == taken + 4 * taken / 4096 + 16);
}

TEST_CASE("a lost standard error is told on standard output", "[unit]") {
  PumpTest test;
  test.err.close();
  test.multiplexer->message("ddprun: to nobody");
  test.out.until("cannot write to standard error");
  say(test.rank(1), "goes on\n");
  test.out.until("[1] goes on\n");
  test.finish();
}

TEST_CASE("streams that lead to one place never mix", "[unit]") {
  PumpTest test;
  FileDescriptor copy(dup(test.out_pipe.write_end.get()));
  test.multiplexer = std::make_unique<OutputMultiplexer>(
      OutputOptions(), kTwoRanks, test.out_pipe.write_end.get(), copy.get());
  FileDescriptor rank = test.rank(0);
  say(rank, std::string(100'000, 'x'));
  test.out.until("x"); // the line's first piece
  test.multiplexer->message("ddprun: news");
  say(rank, std::string(100'000, 'x'));
  test.out.until("news");
  rank.reset();
  test.drain();
  copy.reset();
  test.finish();
  size_t size = 0;
  for (const std::string& line : split_lines(test.out.text())) {
    if (line != "ddprun: news") {
      REQUIRE(line.substr(0, 5) == "[0] x");
      REQUIRE(line.find_first_not_of('x', 4) == std::string::npos);
      size += line.size() - 4;
    }
  }
  CHECK(size == 200'000);
}

TEST_CASE("lines stay whole where there is no terminal", "[unit]") {
  PumpTest test;
  const FileDescriptor first = test.rank(0);
  say(first, "a prompt: ");
  const FileDescriptor second = test.rank(1);
  const auto start = Clock::now();
  for (int i = 0; Clock::now() - start < std::chrono::milliseconds(400); ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    say(second, line);
    test.out.until(line);
  }
  say(first, "answered\n");
  test.finish();
  CHECK(count_of(test.out.text(), "[0] a prompt: answered\n") == 1);
  CHECK(count_of(test.out.text(), "prompt") == 1);
}

} // namespace ddp::test::output_multiplexer_test
