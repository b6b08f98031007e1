// Recorded steps of ranks; what ddp-timeline makes of files that are made up is
// in timeline_command_test.cpp.
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/timelines.h>

#include <ddp/distributed_data_parallel.h>
#include <ddp/reducer/observers/timeline_file.h>

namespace ddp::test::timeline_files_test {

using detail::clock_offset;
using detail::Meeting;
using detail::parse_steps;
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
  // A reduction ends nowhere before it has begun everywhere.
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
    std::vector<Meeting> first;
    std::vector<Meeting> own;
    int64_t now = below(1'000'000);
    const auto meetings = 1 + below(20);
    int64_t shortest = INT64_MAX;
    for (int64_t k = 0; k < meetings; ++k) {
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
    // No worse than the best meeting alone.
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

} // namespace ddp::test::timeline_files_test
