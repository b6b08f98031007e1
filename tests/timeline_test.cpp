// examples/timeline.cpp: a picture of a step, from recorded times.
#include <tests/support/catch.h>
#include <tests/support/examples.h>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>

namespace timeline_test {

using ddp::test::TemporaryFolder;

namespace {

ddp::test::Outcome draw(int ranks, const std::string& file) {
  return ddp::test::run_example(
      ranks,
      "timeline",
      {file,
       "--width=256",
       "--layers=4",
       "--batch-size=32",
       "--bucket-cap-mb=0.5",
       "--steps=4"});
}

struct Bar {
  double left;
  double right;
  std::string color;
};

/// The bars of the chart by row, from top to bottom.
std::map<double, std::vector<Bar>> rows_of(const std::string& svg) {
  const std::regex form(
      "<rect x='([\\d.]+)' y='([\\d.]+)' width='([\\d.]+)' height='18' "
      "fill='(#\\w+)'/>");
  std::map<double, std::vector<Bar>> rows;
  for (std::sregex_iterator match(svg.begin(), svg.end(), form), end;
       match != end;
       ++match) {
    const double left = std::stod((*match)[1]);
    rows[std::stod((*match)[2])].push_back(
        {left, left + std::stod((*match)[3]), (*match)[4]});
  }
  return rows;
}

} // namespace

TEST_CASE("a step's picture shows each rank's work and its buckets") {
  const TemporaryFolder folder;
  for (size_t ranks : {2, 3}) {
    const auto file = folder / std::to_string(ranks) + ".svg";
    const auto outcome = draw(static_cast<int>(ranks), file);
    CAPTURE(ranks, outcome.output);
    REQUIRE(outcome.exit_code == 0);
    CHECK_THAT(outcome.output, ContainsSubstring("2 buckets reduced in"));
    std::ifstream stream(file);
    const std::string svg(std::istreambuf_iterator<char>(stream), {});
    const auto rows = rows_of(svg);
    REQUIRE(rows.size() == 3 * ranks); // of a rank: its work, two buckets
    auto row = rows.begin();
    for (size_t rank = 0; rank < ranks; ++rank) {
      const auto& work = (row++)->second;
      REQUIRE(work.size() == 4); // forward, backward, waits, optimizer
      for (size_t i = 0; i < 3; ++i) {
        CHECK(work[i].right <= work[i + 1].left + 0.6); // a bar is 0.5 wide
      }
      for (int bucket = 0; bucket < 2; ++bucket) {
        const auto& reduction = (row++)->second;
        REQUIRE(reduction.size() == 1);
        CHECK(reduction[0].left >= work[1].left);
        CHECK(reduction[0].right <= work[3].left + 0.6);
      }
    }
  }
}

TEST_CASE("a group of one has no timeline") {
  const TemporaryFolder folder;
  const auto outcome = draw(1, folder / "step.svg");
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(
      outcome.output,
      ContainsSubstring("a group of one reduces nothing; start 2 or more"));
}

} // namespace timeline_test
