// Prefixes, last lines and log files.
#include <tests/support/catch_plain.h>

#include <tests/launcher/pump_fixture.h>

namespace ddp::test::log_file_test {

namespace fs = std::filesystem;

TEST_CASE("a line's prefix follows its template", "[unit]") {
  CHECK(prefix_of("-") == "[7] ");
  CHECK(prefix_of("").empty());
  CHECK(prefix_of("${rank}/${local_rank}: ") == "7/3: ");
  CHECK(
      prefix_of("${role}${role_name}@${host}.${node}") ==
      "trainertrainer@box.1");
  CHECK(prefix_of("${what} $rank ${rank") == "${what} $rank ${rank");
}

TEST_CASE("a prefix tells the time of each line", "[unit]") {
  OutputOptions options;
  options.line_prefix = "<${time}|${rank}> ";
  LinePrefix prefix(options, kTwoRanks, {1, 1, Stream::kOut, 0});
  std::tm day{};
  day.tm_year = 120;
  day.tm_mday = 2;
  day.tm_isdst = -1;
  day.tm_hour = 13;
  day.tm_min = 4;
  day.tm_sec = 59;
  const std::time_t now = std::mktime(&day);
  CHECK(prefix.text(now) == "<13:04:59|1> ");
  CHECK(prefix.text(now + 1) == "<13:05:00|1> ");
}

TEST_CASE("the last lines are few and short", "[unit]") {
  LastLines last;
  CHECK(last.lines().empty());
  for (int i = 0; i < 5000; ++i) {
    last.add("line " + std::to_string(i));
  }
  REQUIRE(last.lines().size() == LastLines::kLines);
  CHECK(last.lines().front() == "line 4980");
  CHECK(last.lines().back() == "line 4999");
  last.add(std::string(10000, 'x') + "end");
  REQUIRE(last.lines().size() == LastLines::kLines);
  CHECK(last.lines().back() == std::string(LastLines::kBytes - 3, 'x') + "end");
}

TEST_CASE("a log file is its owner's, and several may write it", "[unit]") {
  const TemporaryFolder folder;
  const auto report = [](const std::string& text) { FAIL(text); };
  LogFile one(folder / "a/b.log", report);
  LogFile other(folder / "a/b.log", report);
  one.write("unfinished ");
  other.write("line\n");
  one.write("next\n");
  CHECK(read_text(folder / "a/b.log") == "unfinished line\nnext\n");
  CHECK(fs::status(folder / "a").permissions() == fs::perms(0700));
  CHECK(fs::status(folder / "a/b.log").permissions() == fs::perms(0600));
}

TEST_CASE("a log file that cannot be written is said once", "[unit]") {
  Texts reports;
  const auto report = [&](const std::string& text) { reports.push_back(text); };
  LogFile full("/dev/full", report);
  full.write("one\n");
  full.write("two\n");
  REQUIRE(reports.size() == 1);
  CHECK_THAT(
      reports[0], Has("cannot write the log file /dev/full (No space left"));
  LogFile none("/dev/null/folder/file", report);
  none.write("one\n");
  REQUIRE(reports.size() == 2);
  CHECK_THAT(reports[1], Has("Not a directory"));
}

TEST_CASE("a log file takes bytes again when it can", "[unit]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "logs") << "in the way";
  int reports = 0;
  LogFile file(folder / "logs/a.log", [&](const std::string&) { ++reports; });
  file.write("lost\n");
  fs::remove(folder / "logs");
  fs::create_directory(folder / "logs");
  file.write("kept\n");
  CHECK(read_text(folder / "logs/a.log") == "kept\n");
  CHECK(reports == 1);
}

} // namespace ddp::test::log_file_test
