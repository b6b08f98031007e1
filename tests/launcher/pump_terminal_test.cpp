// The pump at a terminal.
#include <tests/support/catch_plain.h>

#include <tests/launcher/pump_fixture.h>

namespace ddp::test::pump_terminal_test {

namespace fs = std::filesystem;

TEST_CASE("rank 0's progress bar stays below all lines", "[terminal]") {
  TerminalTest test;
  const FileDescriptor rank = test.rank(0);
  const FileDescriptor other = test.rank(1);
  say(rank, "10%\r");
  test.reader.until("[0] 10%");
  say(other, "a bar too\rhello\n");
  test.reader.until("\r\x1b[K[1] hello\n[0] 10%");
  test.pump->message("ddprun: news");
  test.reader.until("\r\x1b[Kddprun: news\n[0] 10%");
  say(other, "its own bar\r");
  say(rank, std::string(100, '#') + "\r");
  test.reader.until("\r\x1b[K[0] " + std::string(75, '#'));
  say(rank, "100%\nnot a bar");
  test.reader.until("#\r\x1b[K[0] 100%\n");
  say(rank, "\nthe end\n");
  const std::string text = test.finish();
  CHECK(text.find("the end") < text.find("its own bar"));
  CHECK(count_of(text, std::string(76, '#')) == 0);
  CHECK(count_of(text, "\n[0] not a bar\n") == 1);
}

TEST_CASE("a terminal that is held up holds up no rank", "[terminal]") {
  TerminalTest test(200);
  const FileDescriptor rank = test.rank(0);
  test.pump->message("ddprun: before");
  const size_t much = 20'000'000;
  REQUIRE(flood(rank, much) >= much);
  test.pump->message("ddprun: while nobody reads");
  say(test.rank(1), "also dropped\n");
  test.pump->drain();
  REQUIRE(readable(test.pump->done_fd(), kReadPatience));
  test.reader.until("lines dropped: ");
  test.reader.until("\n");
  CHECK(count_of(test.reader.text(), "ddprun: before\n") == 1);
  CHECK(count_of(test.reader.text(), "ddprun: while nobody reads\n") == 1);
  say(test.rank(1), "lives on\nthe end\n");
  const std::string text = test.finish();
  CHECK(count_of(text, "\n[1] lives on\n") == 1);
  const size_t note = text.find("lines dropped: ") + 15;
  const size_t dropped = std::stoul(text.substr(note));
  const auto shown = static_cast<size_t>(count_of(text, "x\n"));
  CHECK(shown + dropped == much / 4096 + 1 + 1);
}

TEST_CASE(
    "the terminal's ^S and ^Q are no loss within the time",
    "[terminal]") {
  TerminalTest test;
  const FileDescriptor rank = test.rank(0);
  const int ours = test.to_keep.get();
  REQUIRE(tcflow(ours, TCOOFF) == 0);
  say(rank, "held\n");
  test.pump->drain();
  REQUIRE(readable(test.pump->done_fd(), kReadPatience));
  CHECK(test.reader.text().empty());
  REQUIRE(tcflow(ours, TCOON) == 0);
  test.reader.until("[0] held\n");
  say(test.rank(1), "the end\n");
  CHECK(count_of(test.finish(), "dropped") == 0);
}

TEST_CASE("ranks are told apart by colour on a terminal", "[terminal]") {
  Terminal terminal;
  const auto prefix = [&](const char* no_colour, const char* kind) {
    setenv("NO_COLOR", no_colour, 1);
    setenv("TERM", kind, 1);
    const Screen screen(
        terminal.slave.get(), terminal.slave.get(), std::chrono::seconds(1));
    return screen.has_colours(Stream::kOut);
  };
  const char* before = std::getenv("TERM");
  const std::string kind = before ? before : "xterm";
  CHECK(prefix("", "xterm"));
  CHECK_FALSE(prefix("1", "xterm"));
  CHECK_FALSE(prefix("", "dumb"));
  setenv("TERM", kind.c_str(), 1);
  const Pipe pipe = make_pipe();
  const Screen screen(
      pipe.write_end.get(), pipe.write_end.get(), std::chrono::seconds(1));
  CHECK_FALSE(screen.has_colours(Stream::kOut));
}

TEST_CASE("a rank can have a terminal of its own", "[terminal]") {
  PumpTest test;
  PseudoTerminal pty = make_rank_pty();
  CHECK(isatty(pty.slave.get()) == 1);
  CHECK((fcntl(pty.slave.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(pty.master.get(), F_GETFD) & FD_CLOEXEC) != 0);
  say(pty.slave, "raw\n");
  char raw[16];
  REQUIRE(readable(pty.master.get(), kReadPatience));
  CHECK(read(pty.master.get(), raw, sizeof raw) == 4);
  test.pump->add(std::move(pty.master), {0, 0, Stream::kOut, 0});
  say(pty.slave, "one\ntwo\r\nthree");
  pty.slave.reset();
  test.out.until("[0] three\n"); // its end is noticed
  test.finish();
  CHECK(test.out.text() == "[0] one\n[0] two\n[0] three\n");
}

} // namespace ddp::test::pump_terminal_test
