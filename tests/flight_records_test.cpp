// The records of DDP_DEBUG, and the reports of ddp-flightrecorder.
#include <tests/support/debug_jobs.h>
#include <tests/support/shared_page.h>

#include <common/heartbeat_page.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <thread>

namespace ddp::test::flight_records_test {

using nlohmann::json;
using std::chrono::seconds;

/// A record of a job's rank as ddp writes them.
json record_of(int rank, int size, int count) {
  json calls = json::array();
  for (int i = 1; i <= count; ++i) {
    calls.push_back(
        {{"number", i},
         {"group", "ddp"},
         {"backend", "gloo"},
         {"rank", rank},
         {"size", size},
         {"sequence", i},
         {"operation", "all_reduce"},
         {"arguments", "SUM"},
         {"tensors", "float32 [4]"},
         {"alike", true},
         {"bytes", 16},
         {"activity", "step"},
         {"state", i == count ? "started" : "completed"},
         {"began_ns", 1000000000LL * i},
         {"ended_ns", 0}});
  }
  return {
      {"ddp_flight_record", 1},
      {"rank", rank},
      {"size", size},
      {"host", "node"},
      {"process", 1},
      {"time_ns", 1000000000LL * 10},
      {"reason", "SIGUSR1"},
      {"collectives", calls}};
}

void write(
    const TemporaryFolder& folder,
    const std::string& name,
    const json& value) {
  write_text(folder / (name + ".json"), value.dump());
}

TEST_CASE("a rank that leaves a collective out is found in the records") {
  const auto skip = [] {
    const auto group = group_with(seconds(30));
    group.c10d()->getBackend(c10::kCPU)->setTimeout(seconds(3));
    const auto store = group.store();
    group.barrier();
    if (group.rank() != 1) {
      const auto error = error_of<c10::DistBackendError>(
          [&] { group.all_reduce(torch::ones({7})); });
      REQUIRE_THAT(
          error,
          Has("rank 1 ",
              std::string("; its last collectives are in ") +
                  std::getenv("DDP_DEBUG_FOLDER"),
              std::getenv("DDP_DEBUG") == std::string("info")
                  ? "has not reached all_reduce of 7 Float (collective 3 of "
                    "this group), and is in"
                  : "has not reached it in"));
      store->set("left/" + std::to_string(group.rank()), error);
    }
    if (group.rank() < 2) { // rank 0 has the store
      store->wait({"left/0", "left/2"}, seconds(30));
      if (std::getenv("DDP_DEBUG") == std::string("info")) {
        REQUIRE(store->get_to_str("left/0") == store->get_to_str("left/2"));
      }
    }
    if (group.rank() == 1) {
      raise(SIGUSR1);
      store->set("left/1", std::string("1"));
    } else if (group.rank() == 0) {
      store->wait({"left/1"}, seconds(30));
    }
  };
  for (const auto& [backend, level] :
       {std::pair<const char*, const char*>{"gloo", "detail"},
        {"gloo", "info"},
        {"shm", "info"}}) {
    if (const auto ended = job(3, backend, level, skip)) {
      const auto report = report_of(1, {ended->folder->path()});
      REQUIRE_THAT(
          report,
          Has("  collective 3: not all ranks have called it\n"
              "    rank 0: all_reduce(SUM) of float32 [7]: failed, ",
              "    rank 1: not reached; its last is "
              "collective 2, barrier: completed, "));
      // Without that rank's record.
      REQUIRE_THAT(
          report_of(1, {ended->path(0), ended->path(2)}),
          Has("  collective 3: not all ranks have called it\n"
              "    rank 1: no record of this group\n"));
    }
  }
}

TEST_CASE("SIGUSR1 writes records of a training that goes on") {
  auto commands = commands_of_ranks(
      4,
      [] {
        const auto group = group_with(seconds(30));
        const std::string end = std::getenv("DDP_DEBUG_FOLDER");
        std::cout << "training" << std::endl;
        auto stop = torch::zeros({1});
        while (stop.item<float>() == 0) {
          stop.fill_(access((end + "/end").c_str(), F_OK) == 0);
          group.all_reduce(stop);
        }
        std::cout << "trained" << std::endl;
      },
      {{"DDP_DEBUG", "info"}, {"DDP_BACKEND", "shm"}});
  if (commands.empty()) {
    return;
  }
  const TemporaryFolder folder;
  write_text(folder / "rank_2.json", "an earlier job's");
  write_text(folder / "rank_10.json", "that of an earlier, larger job");
  commands = commands_in(folder, std::move(commands));
  std::vector<Process> processes(commands.begin(), commands.end());
  for (auto& process : processes) {
    REQUIRE(process.wait_for("training", seconds(30)));
  }
  for (auto& process : processes) {
    process.signal(SIGUSR1);
  }
  const auto all = std::set<std::string>{
      "rank_0.json",
      "rank_1.json",
      "rank_10.json.previous",
      "rank_2.json",
      "rank_2.json.previous",
      "rank_3.json"};
  REQUIRE(becomes_true([&] { return folder.names() == all; }));
  REQUIRE_THAT(
      report_of(0, {folder.path()}),
      Has("rank 3 of 4 on ",
          " collectives: SIGUSR1\n",
          "  the ranks agree, up to collective "));
  write_text(folder / "end", "");
  for (auto& process : processes) {
    REQUIRE_THAT(output_of(process.finish(seconds(30))), Has("trained"));
  }
}

TEST_CASE("SIGUSR1 does not end a rank that waits in init_process_group") {
  auto commands = commands_of_ranks(
      2,
      [] { (void)init_process_group(); },
      {{"DDP_DEBUG", "info"}, {"DDP_BACKEND", "shm"}});
  if (commands.empty()) {
    return;
  }
  const TemporaryFolder folder;
  commands = commands_in(folder, std::move(commands));
  const SharedPage<HeartbeatPage> page;
  commands[0].environment[kHeartbeatVariable] = page.descriptor();
  Process first(commands[0]);
  REQUIRE(becomes_true([&] { return page->beats > 0; }));
  first.signal(SIGUSR1);
  Process second(commands[1]);
  output_of(first.finish(kLong));
  output_of(second.finish(kLong));
}

TEST_CASE("a program's own handler of SIGUSR1 stays") {
  const auto ended = job(3, "gloo", "info", [] {
    std::signal(SIGUSR1, own_handler);
    const auto group = init_process_group();
    raise(SIGUSR1);
    REQUIRE(own_calls == 1);
  });
  if (ended) {
    REQUIRE(ended->folder->names().empty());
  }
}

TEST_CASE("ranks that crash or are stopped leave records") {
  const auto ended =
      job(3,
          "gloo",
          "info",
          [] {
            std::signal(SIGABRT, SIG_DFL); // Catch's and the watchdog's
            std::signal(SIGTERM, SIG_DFL);
            const auto group = group_with(seconds(30));
            group.barrier();
            if (group.rank() == 1) {
              std::abort();
            }
            if (group.rank() == 2) {
              raise(SIGTERM);
            }
            const auto error = error_of<c10::DistBackendError>(
                [&] { group.all_reduce(torch::ones({3})); });
          },
          {0, 128 + SIGABRT, 128 + SIGTERM});
  if (ended) {
    REQUIRE(ended->record(1).at("reason") == "Signal 6 (Aborted)");
    REQUIRE(ended->record(2).at("reason") == "SIGTERM");
    REQUIRE_THAT(
        report_of(1, {ended->folder->path()}),
        Has("  collective 3: not all ranks have called it\n"
            "    rank 0: all_reduce(SUM) of float32 [3]: failed",
            "    rank 1: not reached; its last is",
            "    rank 2: not reached; its last is"));
  }
}

TEST_CASE("the record has the last 1,000 collectives") {
  const auto ended = job(3, "shm", "info", [] {
    const auto group = group_with(seconds(30));
    auto value = torch::ones({2, 2}, at::kDouble);
    for (int i = 0; i < 1200; ++i) {
      value.fill_(1);
      group.all_reduce(value);
    }
    group.barrier(); // the records of others may contain its start
    raise(SIGUSR1);
  });
  if (ended) {
    const auto calls = ended->record(2).at("collectives");
    REQUIRE(calls.size() == 1000);
    for (size_t i = 0; i < calls.size(); ++i) {
      REQUIRE(calls[i].at("number") == 203 + i);
      REQUIRE(calls[i].at("sequence") == 203 + i);
    }
    const auto& one = calls[500];
    REQUIRE(one.at("operation") == "all_reduce");
    REQUIRE(one.at("tensors") == "float64 [2, 2]");
    REQUIRE(one.at("bytes") == 32);
    REQUIRE(one.at("state") == "completed");
    REQUIRE(one.at("ended_ns") >= one.at("began_ns"));
    // The time of day may be changed between a start and a record.
    REQUIRE(one.at("ended_ns") <= Clock::now().time_since_epoch().count());
    report_of(0, {ended->folder->path()});
  }
}

TEST_CASE("a disk that takes a record slowly holds up no collective") {
  job(2, "shm", "info", [] {
    const auto group = group_with(seconds(30));
    const auto call = [&](int times) {
      for (int i = 0; i < times; ++i) {
        group.barrier();
      }
    };
    call(1000);
    if (group.rank() != 0) {
      return call(20);
    }
    const std::string folder = std::getenv("DDP_DEBUG_FOLDER");
    const auto draft = folder + "/rank_0.json.part0";
    REQUIRE(mkfifo(draft.c_str(), 0600) == 0);
    const FileDescriptor disk(
        open(draft.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    std::thread writer([] { raise(SIGUSR1); });
    constexpr int kFull = 60 << 10; // a pipe takes 64 KiB
    for (int waiting = 0; waiting < kFull;) {
      REQUIRE(ioctl(disk.get(), FIONREAD, &waiting) == 0);
    }
    call(20);
    REQUIRE(fcntl(disk.get(), F_SETFL, 0) == 0);
    std::string record;
    char part[4096];
    for (ssize_t size; (size = read(disk.get(), part, sizeof(part))) > 0;) {
      record.append(part, static_cast<size_t>(size));
    }
    writer.join();
    REQUIRE(json::parse(record).at("collectives").size() > 900);
  });
}

FOLDER_TEST("ddp-flightrecorder refuses what is no record") {
  const auto trouble = [&](const std::vector<std::string>& paths) {
    const auto output = report_of(2, paths);
    REQUIRE(output.rfind("ddp-flightrecorder: ", 0) == 0);
    return output;
  };
  REQUIRE_THAT(trouble({}), Has("(see ddp-flightrecorder --help)"));
  REQUIRE_THAT(trouble({folder / "none"}), Has("No such file or directory"));
  REQUIRE_THAT(
      trouble({folder.path()}), Has("this folder contains no flight record"));
  write(folder, "rank_0", {{"rank", 0}});
  REQUIRE_THAT(trouble({folder.path()}), Has("not a flight record"));
  auto endless = record_of(0, 3, 5);
  endless["size"] = int64_t{1} << 62;
  write(folder, "rank_0", endless);
  REQUIRE_THAT(
      trouble({folder.path()}),
      Has("not a flight record: size is 4611686018427387904"));
  write(folder, "rank_0", record_of(0, 3, 5));
  write(folder, "rank_1", record_of(1, 4, 5));
  REQUIRE_THAT(
      trouble({folder.path()}),
      Has("are from different jobs", ". Remove the files of"));
}

FOLDER_TEST(
    "ddp-flightrecorder tells a rank that is behind from one that waits") {
  for (int rank = 0; rank < 4; ++rank) {
    write(folder, "rank_" + std::to_string(rank), record_of(rank, 4, 5));
  }
  REQUIRE_THAT(
      report_of(0, {folder.path()}),
      Has("group ddp over gloo, size 4\n"
          "  the ranks agree, up to collective 5\n"));
  auto ahead = record_of(2, 4, 6);
  write(folder, "rank_2", ahead);
  REQUIRE_THAT(
      report_of(1, {folder.path()}),
      Has("  collective 6: not all ranks have called it\n"
          "    rank 0: not reached; its last is collective 5, all_reduce(SUM) "
          "of "
          "float32 [4] (step): started, begun 5.0 s before the record\n",
          "    rank 2: all_reduce(SUM) of float32 [4] (step): started, begun "
          "4.0 s before the record\n"));
  // It has just begun: the others' records may be older.
  ahead["time_ns"] = 6000000001;
  write(folder, "rank_2", ahead);
  report_of(0, {folder.path()});
  ahead["collectives"][3]["tensors"] = "float32 [8]";
  write(folder, "rank_2", ahead);
  REQUIRE_THAT(
      report_of(1, {folder.path()}),
      Has("  collective 4: the ranks' calls differ\n"
          "    ranks 0-1,3: all_reduce(SUM) of float32 [4] "
          "(step)\n"
          "    rank 2: all_reduce(SUM) of float32 [8] (step)\n"));
  ahead["time_ns"] = 10000000000;
  write(folder, "rank_2", ahead);
  REQUIRE_THAT( // the program has survived the difference
      report_of(1, {folder.path()}),
      Has("collective 4: the ranks' calls differ",
          "collective 6: not all ranks have called it"));
  ahead["collectives"][3]["tensors"] = "float32 [4]";
  ahead["collectives"][5]["sequence"] = int64_t{1} << 62;
  write(folder, "rank_2", ahead);
  REQUIRE_THAT(
      report_of(1, {folder.path()}),
      Has("collective 4611686018427387904: not all ranks have called it"));
}

} // namespace ddp::test::flight_records_test
