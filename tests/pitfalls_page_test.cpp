// docs/pitfalls.md: that the page is whole.
#include <tests/support/examples.h>
#include <tests/support/pitfalls_page.h>

namespace ddp::test::pitfalls_page_test {

TEST_CASE("each message of the page has a check here, and each check one") {
  std::set<std::string> on_page;
  for (const auto& [title, text] : messages()) {
    on_page.insert(title);
  }
  std::set<std::string> checked;
  for (const auto& found : matches(
           content_of("tests/pitfalls_test.cpp"),
           "check_message\\(\\s*\"([^\"]+)\"")) {
    checked.insert(found[0]);
  }
  CHECK(on_page.size() > 8);
  for (const auto& [title, text] : messages()) {
    CAPTURE(title);
    CHECK(text.size() > 60); // not a gap alone
  }
  CHECK(on_page == checked);
}

TEST_CASE("each section of the page has its parts") {
  const auto page = content_of("docs/pitfalls.md");
  const auto sections = matches(page, "\n## ([^\n]+)");
  CHECK(sections.size() > 8);
  for (const auto* part :
       {"**Cause**", "**What ddp does**", "**The message now**", "**Fix**"}) {
    size_t count = 0;
    for (size_t at = page.find(part); at != std::string::npos;
         at = page.find(part, at + 1)) {
      ++count;
    }
    CAPTURE(part);
    CHECK(count == sections.size());
  }
}

TEST_CASE("each test that the page names exists") {
  const auto page = one_line(content_of("docs/pitfalls.md"));
  const auto names = matches(page, "`tests/(\\w+_test\\.cpp)`, \"([^\"]+)\"");
  CHECK(names.size() > 1);
  for (const auto& name : names) {
    const auto test = one_line(content_of("tests/" + name[0]));
    const auto title = "\"" + name[1] + "\"";
    CHECK_THAT(test, Has(title + ") {") || Has(title + ", "));
  }
}

TEST_CASE("a pattern fits as a whole") {
  CHECK(fits("a b c", "a ... c"));
  CHECK(fits("a b c", "... c"));
  CHECK(fits("a b c", "a ..."));
  CHECK(fits("a b c", "a b c"));
  CHECK(!fits("a b c d", "a ... c"));
  CHECK(!fits("x a b c", "a ... c"));
  CHECK(!fits("a b c", "a b"));
  CHECK(!fits("a c", "a ... b ... c"));
  CHECK(!fits("ab", "ab ... b"));
}

} // namespace ddp::test::pitfalls_page_test
