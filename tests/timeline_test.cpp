// Recorded steps of ranks, and ddp-timeline's output for synthetic files.
#include <ddp/distributed_data_parallel.h>
#include <ddp/reducer/observers/timeline_file.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/timelines.h>

namespace ddp::test::timeline_test {

using detail::clock_offset;
using detail::parse_steps;
using detail::SyncPoint;
using nlohmann::json;

double begin_of(const json& span) {
  return span["ts"];
}

double end_of(const json& span) {
  return span["ts"].get<double>() + span["dur"].get<double>();
}

void train(
    const ProcessGroup& group,
    const ReducerOptions& options,
    int64_t steps) {
  DistributedDataParallel<UnevenNet> model(
      std::make_shared<UnevenNet>(), group, options);
  for (int64_t step = 1; step <= steps; ++step) {
    model->forward(batch(group, step, 7)).sum().backward();
  }
}

ReducerOptions steps_2_and_3(const std::string& folder) {
  return ReducerOptions()
      .bucket_cap_mb(1)
      .timeline_folder(folder)
      .timeline_steps("2-3");
}

/// Two ranks or more wrote steps 2 and 3, of two buckets each, into the folder.
void check_run(const std::string& folder, int64_t size) {
  REQUIRE(
      output_of(ddp_timeline(
          {folder, "-o", folder + "trace.json", "--svg", folder + "a.svg"})) ==
      "");
  REQUIRE(is_xml(folder + "a.svg"));
  const auto trace = json::parse(read_text(folder + "trace.json"));
  // A reduction ends on no rank before it has begun on all ranks.
  std::map<std::pair<int64_t, std::string>, std::pair<double, double>> range;
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto compute = spans(trace, rank, "compute");
    REQUIRE(compute.size() == 4); // forward and backward, twice
    for (size_t i = 0; i < 4; ++i) {
      REQUIRE(compute[i]["name"] == (i % 2 == 0 ? "forward" : "backward"));
      REQUIRE(compute[i]["args"]["step"] == static_cast<int64_t>(2 + i / 2));
      REQUIRE(compute[i]["dur"] > 0);
      REQUIRE((i == 0 || end_of(compute[i - 1]) <= begin_of(compute[i])));
    }
    const auto buckets = reductions(trace, rank);
    REQUIRE(buckets.size() == 4);
    const auto waits = spans(trace, rank, "waits");
    REQUIRE(waits.size() == 4);
    for (const auto& bucket : buckets) {
      const int64_t step = bucket["args"]["step"];
      const auto& backward = compute.at(2 * (step - 2) + 1);
      REQUIRE(begin_of(bucket) >= begin_of(backward));
      auto& [last_begin, first_end] =
          range.insert({{step, bucket["name"]}, {0, 1e300}}).first->second;
      last_begin = std::max(last_begin, begin_of(bucket));
      first_end = std::min(first_end, end_of(bucket));
    }
    for (size_t i = 0; i < waits.size(); ++i) {
      REQUIRE(begin_of(waits[i]) >= end_of(compute.at(i / 2 * 2 + 1)));
      REQUIRE((i == 0 || end_of(waits[i - 1]) <= begin_of(waits[i])));
    }
  }
  double error = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto name = "/0_reducer_0.rank" + std::to_string(rank) + ".json";
    const auto file = json::parse(read_text(folder + name));
    error = std::max(error, file["clock_error"].get<double>() / 1e3);
    REQUIRE((rank == 0) == (file["clock_error"] == 0));
  }
  REQUIRE(range.size() == 4); // two buckets, two steps
  for (const auto& [name, times] : range) {
    REQUIRE(times.first <= times.second + 2 * error);
  }
}

TEST_CASE("chosen steps of three ranks come to one trace and one picture") {
  const SharedFolder folder;
  ranks(3, [&](ProcessGroup group) {
    train(group, steps_2_and_3(folder.path), 5);
  });
  check_run(folder.path, 3);
}

TEST_CASE("groups that were handed over have files of their own") {
  const SharedFolder folder;
  ranks(3, [&](ProcessGroup group) {
    for (int i = 0; i < 2; ++i) {
      const auto part =
          ProcessGroup::from_c10d(group.duplicate().c10d(), torch::kCPU);
      train(part, steps_2_and_3(folder.path), 3);
    }
  });
  const std::filesystem::directory_iterator files(folder.path);
  CHECK(std::distance(begin(files), end(files)) == 6);
}

TEST_CASE("the environment chooses steps, and a run that ends writes its own") {
  const SharedFolder folder;
  const auto options = RankOptions().environment(
      {{"DDP_TIMELINE", folder.path + "here"},
       {"DDP_TIMELINE_STEPS", "2-100"}});
  ranks(3, options, [] { train(init_process_group(), ReducerOptions(), 3); });
  for (int rank = 0; rank < 3; ++rank) {
    const auto name = "here/0_reducer_0.rank" + std::to_string(rank) + ".json";
    const auto file = json::parse(read_text(folder.path + name));
    CHECK(file["steps"].size() == 2);
    CHECK(file["rank"] == rank);
    CHECK(file.contains("clock_offset"));
  }
}

RANKS_TEST("empty variables switch the timeline off") {
  const auto path = folder + "off";
  setenv("DDP_TIMELINE", "", 1);
  setenv("DDP_TIMELINE_STEPS", "1", 1);
  train(group, ReducerOptions(), 2);
  setenv("DDP_TIMELINE", path.c_str(), 1);
  setenv("DDP_TIMELINE_STEPS", "", 1);
  train(group, ReducerOptions(), 2);
  train(group, ReducerOptions().timeline_folder(path), 2);
  REQUIRE(!std::filesystem::exists(path));
}

TEST_CASE("where steps are not chosen or not alike, there are no files") {
  const SharedFolder folder;
  ranks(3, [&](ProcessGroup group) {
    train(group, ReducerOptions(), 3);
    const auto path = folder.path + "there";
    train(
        group,
        ReducerOptions().timeline_folder(path).timeline_steps("20-30"),
        3);
    const auto steps = group.rank() == 1 ? "2" : "1";
    REQUIRE_THROWS_WITH(
        train(
            group,
            ReducerOptions().timeline_folder(path).timeline_steps(steps),
            3),
        Has("timeline_steps"));
  });
  CHECK(std::filesystem::is_empty(folder.path + "there"));
}

TEST_CASE("a clock's offset is found within its bound") {
  std::mt19937_64 random(7);
  const auto below = [&random](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  for (int i = 0; i < 300; ++i) {
    const int64_t behind = below(2'000'000'000) - 1'000'000'000;
    std::vector<SyncPoint> first;
    std::vector<SyncPoint> own;
    int64_t now = below(1'000'000);
    const auto sync_points = 1 + below(20);
    int64_t shortest = INT64_MAX;
    for (int64_t k = 0; k < sync_points; ++k) {
      const auto first_comes = now + below(1000);
      const auto own_comes = now + below(1000);
      const auto met = std::max(first_comes, own_comes);
      const auto first_leaves = met + below(1000);
      const auto own_leaves = met + below(1000);
      first.emplace_back(first_comes, first_leaves);
      own.emplace_back(own_comes - behind, own_leaves - behind);
      now += 4000;
      shortest = std::min(
          shortest, first_leaves - first_comes + own_leaves - own_comes);
    }
    const auto found = clock_offset(first, own);
    CHECK(std::abs(found.offset.count() - behind) <= found.error.count());
    // No worse than the best single meeting.
    CHECK(found.error.count() <= (shortest + 1) / 2);
  }
}

TEST_CASE("steps are one or a range") {
  CHECK(parse_steps("12").first == 12);
  CHECK(parse_steps("12").last == 12);
  CHECK(parse_steps("3-40").first == 3);
  CHECK(parse_steps("3-40").last == 40);
  for (const auto* wrong : {"", "0", "5-4", "a", "1-", "-2", "1-2-3", "1 "}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH(parse_steps(wrong), Has("as in 10-12"));
  }
}

// The output of ddp-timeline for synthetic files.

/// The error message of a ddp-timeline that fails.
std::string trouble(const Words& arguments) {
  const auto output = output_of(run(ddp_timeline(arguments), kLong), 2);
  REQUIRE(output.rfind("ddp-timeline: ", 0) == 0);
  REQUIRE(output.find('\n') == output.size() - 1);
  return output;
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
  // The bars of a bucket begin at the same x.
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
      "ddp-timeline: note: the files are from 1 of 3 ranks\n");
}

} // namespace ddp::test::timeline_test
