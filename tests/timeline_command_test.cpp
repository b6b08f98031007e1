// What ddp-timeline makes of files that are made up.
#include <tests/support/timelines.h>

namespace ddp::test::timeline_command_test {

using nlohmann::json;

/// What it says when it gives no answer.
std::string trouble(const Words& arguments) {
  const auto outcome = run(ddp_timeline(arguments), kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 2);
  REQUIRE(outcome.output.rfind("ddp-timeline: ", 0) == 0);
  REQUIRE(outcome.output.find('\n') == outcome.output.size() - 1);
  return outcome.output;
}

/// A rank's file of a step with a bucket, in which it computes from 1000 to
/// 3000 ns and reduces from 2000 to 4000, by a clock behind rank 0's.
json made_up(int64_t rank, int64_t size, int64_t behind) {
  const auto at = [behind](int64_t time) { return time - behind; };
  return {
      {"ddp_timeline", 1},
      {"rank", rank},
      {"world_size", size},
      {"host", "host"},
      {"reducer", "reducer_0"},
      {"clock_offset", behind},
      {"clock_error", 7},
      {"steps",
       {{{"step", 10},
         {"forward_began", nullptr},
         {"forward_ended", nullptr},
         {"began", at(1000)},
         {"computed", at(3000)},
         {"finished", at(5000)},
         {"buckets",
          {{{"bytes", 2048},
            {"ready", at(1500)},
            {"launched", at(2000)},
            {"done", at(4000)},
            {"waiting", at(3500)},
            {"waited", at(4500)}}}}}}}};
}

std::string write(
    const TemporaryFolder& folder,
    const std::string& name,
    const json& content) {
  write_text(folder / name, content.dump());
  return folder / name;
}

FOLDER_TEST("clocks that differ are aligned in the trace and in the picture") {
  // The second rank's clock is a second behind, and the third's ahead.
  const std::vector<int64_t> behind{0, 1'000'000'000, -5'000'000'000};
  for (int64_t rank = 0; rank < 3; ++rank) {
    write(
        folder,
        "reducer_0.rank" + std::to_string(rank) + ".json",
        made_up(rank, 3, behind[rank]));
  }
  write_text(folder / "notes.json", "no timeline");
  const auto trace = json::parse(output_of(ddp_timeline({folder.path()})));
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto computing = spans(trace, rank, "compute").at(0);
    CHECK(computing["ts"] == 0.0);
    CHECK(computing["dur"] == 2.0);
    const auto reduction = spans(trace, rank, "communication").at(0);
    CHECK(reduction["name"] == "bucket 1");
    CHECK(reduction["args"]["bytes"] == 2048);
    CHECK(reduction["args"]["step"] == 10);
    CHECK(reduction["ts"] == 1.0);
    CHECK(reduction["dur"] == 2.0);
    const auto wait = spans(trace, rank, "waits").at(0);
    CHECK(wait["ts"] == 2.5);
    CHECK(wait["dur"] == 1.0);
  }
  const auto svg = folder / "out.svg";
  output_of(ddp_timeline({folder.path(), "--svg", svg}));
  CHECK(is_xml(svg));
  const auto picture = read_text(svg);
  CHECK_THAT(picture, Has(">rank 2</text>"));
  CHECK_THAT(picture, Has("Step 10 of 3 ranks; clocks agree within"));
  // One place for all: bars of the same bucket begin below each other.
  const std::string bar = "<title>step 10, bucket 1, 2.0 KiB: 0.002 ms</title>";
  std::set<std::string> places;
  size_t count = 0;
  for (auto at = picture.find(bar); at != std::string::npos;
       at = picture.find(bar, at + 1)) {
    const auto x = picture.rfind("x=\"", at);
    places.insert(picture.substr(x, picture.find("y=\"", x) - x));
    ++count;
  }
  CHECK(count == 3);
  CHECK(places.size() == 1);
}

FOLDER_TEST("the Reducers of a rank have tracks and lanes of their own") {
  const auto first = write(folder, "one.json", made_up(0, 1, 0));
  auto content = made_up(0, 1, 0);
  content["reducer"] = "a<b&c";
  const auto second = write(folder, "two.json", content);
  const auto svg = folder / "out.svg";
  const auto trace = json::parse(output_of(ddp_timeline({first, second})));
  CHECK(spans(trace, 0, "compute (reducer_0)").size() == 1);
  CHECK(spans(trace, 0, "compute (a<b&c)").size() == 1);
  CHECK(spans(trace, 0, "waits (a<b&c)").size() == 1);
  output_of(ddp_timeline({first, second, "--svg", svg}));
  CHECK(is_xml(svg));
  CHECK_THAT(read_text(svg), Has(">a&lt;b&amp;c</text>"));
}

FOLDER_TEST("reductions that overlap are drawn in rows of their own") {
  auto content = made_up(0, 1, 0);
  auto& buckets = content["steps"][0]["buckets"];
  buckets.push_back(buckets[0]);
  buckets.push_back(buckets[0]);
  buckets[1]["launched"] = 3000; // before the first is done
  buckets[2]["launched"] = 4000;
  buckets[2]["done"] = 4500;
  const auto file = write(folder, "one.json", content);
  std::set<int64_t> tracks;
  const auto all = reductions(json::parse(output_of(ddp_timeline({file}))), 0);
  REQUIRE(all.size() == 3);
  for (const auto& one : all) {
    tracks.insert(one["tid"].get<int64_t>());
  }
  CHECK(tracks.size() == 2);
}

FOLDER_TEST("ddp-timeline says which file is of no use") {
  CHECK_THAT(
      trouble({folder / "none.json"}),
      Has("none.json: cannot be read: No such file"));
  CHECK_THAT(trouble({folder.path()}), Has("no timeline of a rank"));
  write_text(folder / "a.json", "{\"ddp_timeline\": 1, \"rank\":");
  CHECK_THAT(
      trouble({folder / "a.json"}), Has("a.json: not a timeline of a rank"));
  write_text(folder / "b.json", "{\"ddp_timeline\": 2}");
  CHECK_THAT(trouble({folder / "b.json"}), Has("another version"));
  const auto first = write(folder, "c.json", made_up(0, 3, 0));
  const auto second = write(folder, "d.json", made_up(1, 4, 0));
  CHECK_THAT(trouble({first, second}), Has("different runs"));
  CHECK_THAT(trouble({first, first}), Has("different runs"));
  CHECK_THAT(trouble({}), Has("see ddp-timeline --help"));
  const auto alone = write(folder, "e.json", made_up(0, 1, 0));
  CHECK_THAT(
      trouble({alone, "-o", folder / "no/trace.json"}),
      Has("no/trace.json: cannot be written"));
  CHECK(
      output_of(ddp_timeline({first, "-o", folder / "trace.json"})) ==
      "ddp-timeline: note: files of 1 of 3 ranks\n");
}

} // namespace ddp::test::timeline_command_test
