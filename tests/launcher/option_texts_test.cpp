// What --help says.
#include <tests/support/catch_plain.h>

#include <launcher/cli/options/option_table.h>
#include <tests/launcher/launched_job.h>
#include <tests/launcher/option_parsing.h>

namespace ddp::test::option_texts_test {

TEST_CASE("every option of the docs is in --help, once", "[unit]") {
  const std::string help = parse({"--help"}).answer;
  std::set<std::string> names;
  for (const CommandOption& option : option_table()) {
    CHECK(option.help.back() == '.');
    CHECK_FALSE(option.group.empty());
    for (const std::string& form : option.forms) {
      CAPTURE(form);
      CHECK(names.insert(form).second);
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

TEST_CASE("what an option stores has a row in the docs", "[unit]") {
  const auto& table = option_table();
  const auto stores = std::count_if(
      table.begin(), table.end(), [](const CommandOption& option) {
        return option.store != nullptr;
      });
  CHECK(static_cast<size_t>(stores) == stored_options());
}

TEST_CASE("help fits a terminal", "[unit]") {
  size_t longest = 0;
  for (const std::string& line : lines_of(parse({"--help"}).answer)) {
    longest = std::max(longest, line.size());
  }
  CHECK(longest <= 80);
  CHECK(longest > 68);
}

} // namespace ddp::test::option_texts_test
