// What --help says.
#include <tests/support/catch_plain.h>

#include <set>

#include <launcher/cli/help/help_text.h>
#include <launcher/cli/options/option_table.h>
#include <tests/launcher/launched_job.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::option_texts_test {

TEST_CASE("every option is in --help and in the docs", "[unit]") {
  const std::string help = parse({"--help"}).answer;
  const std::string page = read_text(SOURCE_PATH "/docs/launching.md");
  std::set<std::string> names;
  for (const CommandOption& option : option_table()) {
    CHECK(std::string(option.help).back() == '.');
    for (const std::string& form : forms_of(option)) {
      CAPTURE(form);
      CHECK(names.insert(form).second);
      CHECK(
          count_of(page, "| `" + form) + count_of(page, ", " + form + " ") +
              count_of(page, ", " + form + "`") >=
          1);
      CHECK(
          count_of(help, "  " + form + " ") +
              count_of(help, ", " + form + " ") +
              count_of(help, "  " + form + ",") +
              count_of(help, "  " + form + "\n") ==
          1);
    }
  }
  CHECK(names.size() > 40);
}

TEST_CASE("help fits the terminal", "[unit]") {
  for (const size_t columns : {60, 80, 120}) {
    const std::string help =
        parse({"--help"}, {{"COLUMNS", std::to_string(columns)}}).answer;
    size_t longest = 0;
    for (const std::string& line : lines_of(help)) {
      longest = std::max(longest, line.size());
    }
    CAPTURE(columns, longest);
    CHECK(longest <= columns);
    CHECK(longest + 12 > columns);
  }
  CHECK(
      parse({"--help"}, {{"COLUMNS", "wide"}}).answer ==
      parse({"--help"}).answer);
}

} // namespace ddp::test::option_texts_test
