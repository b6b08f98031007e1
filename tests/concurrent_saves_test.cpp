#include <checkpoint/checkpoint_folder.h>
#include <tests/support/child.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/shared_page.h>
#include <tests/support/stepped_training.h>

namespace ddp::test::concurrent_saves_test {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::microseconds;

constexpr std::chrono::seconds kWatchdog(600);

/// The number of kills; DDP_TEST_KILLS sets another number for a longer run.
int kills(int few) {
  return variable("DDP_TEST_KILLS", few);
}

void kill(Process& process) {
  process.signal(SIGKILL);
  process.finish(kWatchdog);
}

/// Does not yield the processor, which could take longer.
void wait_for(Microseconds delay) {
  for (const auto end = Clock::now() + delay; Clock::now() < end;) {
  }
}

// ---- Many writers of one file.

constexpr int kWriters = 8;
constexpr int64_t kNumbers = 1'000'000; // of each writer

c10::IValue content_of(int64_t writer, int64_t number) {
  const auto both = writer * kNumbers + number;
  return dict(
      {{"writer", writer},
       {"number", number},
       {"a", torch::full({2'000}, both, torch::kInt64)},
       {"b", torch::full({2'000}, both, torch::kInt64)},
       {"c", torch::full({2'000}, both, torch::kInt64)},
       {"d", torch::full({3'001}, static_cast<double>(writer), at::kDouble)}});
}

/// Reads a file, which must be one writer's. Returns the writer and its number.
std::pair<int64_t, int64_t> read_content(const std::string& path, bool map) {
  const auto value =
      read_checkpoint_file(path, LoadOptions().mmap(map)).toGenericDict();
  const auto writer = value.at("writer").toInt();
  const auto number = value.at("number").toInt();
  REQUIRE(value.size() == 6);
  for (const auto* name : {"a", "b", "c"}) {
    const auto tensor = value.at(name).toTensor();
    REQUIRE(tensor.numel() == 2'000);
    REQUIRE(tensor.eq(writer * kNumbers + number).all().item<bool>());
  }
  const auto last = value.at("d").toTensor();
  REQUIRE(last.numel() == 3'001);
  REQUIRE(last.eq(static_cast<double>(writer)).all().item<bool>());
  return {writer, number};
}

struct Progress {
  std::atomic<int> saved[kWriters];
  std::atomic<bool> stop;
  std::atomic<int> loads;
  std::atomic<int> changes;
};

void write_on(const std::string& path, int writer, int saves, Progress& all) {
  while (all.saved[writer] < saves) {
    write_checkpoint_file(path, content_of(writer, all.saved[writer] + 1));
    ++all.saved[writer];
  }
}

void read_on(const std::string& path, Progress& all) {
  std::pair<int64_t, int64_t> before;
  while (!all.stop) {
    const auto content = read_content(path, all.loads % 2 == 0);
    ++all.loads;
    all.changes += content != before ? 1 : 0;
    before = content;
  }
}

/// Kills one writer after another, and starts each again, until all are done.
int kill_writers(const std::string& path, int saves, Progress& progress) {
  std::vector<std::optional<Process>> writers(kWriters);
  const auto start = [&](int writer) {
    writers[writer].emplace(
        child([&] { write_on(path, writer, saves, progress); }));
  };
  for (int writer = 0; writer < kWriters; ++writer) {
    start(writer);
  }
  std::mt19937 random(3);
  int killed = 0;
  for (;;) {
    std::vector<int> running;
    for (int writer = 0; writer < kWriters; ++writer) {
      if (!writers[writer]->has_ended()) {
        running.push_back(writer);
      }
    }
    if (running.empty()) {
      for (auto& writer : writers) {
        output_of(writer->finish(kWatchdog));
      }
      return killed;
    }
    ::usleep(random() % 4'000); // the writers need a processor
    const auto writer = running[random() % running.size()];
    if (!writers[writer]->has_ended()) {
      kill(*writers[writer]);
      start(writer);
      ++killed;
    }
  }
}

void write_together(const std::string& extension, int saves) {
  const TemporaryFolder folder;
  const auto path = folder / ("run" + extension);
  write_checkpoint_file(path, content_of(0, 0));
  const SharedPage<Progress> progress;
  auto reader = child([&] { read_on(path, *progress); });
  const auto killed = kill_writers(path, saves, *progress);
  progress->stop = true;
  output_of(reader.finish(kWatchdog));
  // The last file is the last one of its writer.
  REQUIRE(read_content(path, false).second == saves);
  int left = 0;
  for (const auto& name : folder.names()) {
    if (name != "run" + extension) {
      REQUIRE(name.rfind(".run" + extension + ".tmp.", 0) == 0);
      ++left;
    }
  }
  REQUIRE(left <= killed);
  REQUIRE(killed > 0);
  REQUIRE(progress->changes > 0);
  std::cout << extension << ": " << kWriters << " writers of " << saves
            << " saves, " << killed << " killed; " << progress->loads
            << " loads of " << progress->changes
            << " contents; hidden names left: " << left << "\n";
}

TEST_CASE("writers of one file replace it as a whole, killed or not") {
  for (const auto* extension : {".pt", ".safetensors"}) {
    write_together(extension, kills(60));
  }
}

constexpr int64_t kValues = 200'000; // 2.4 MB

struct Run {
  std::atomic<int64_t> started; // the step whose save began last
  std::atomic<int64_t> durable; // the last step that must be found
  std::atomic<int64_t> nanoseconds; // of the last save
};

CheckpointManagerOptions options_of(
    const std::string& extension,
    bool asynchronous) {
  return CheckpointManagerOptions()
      .keep_last(2)
      .extension(extension)
      .asynchronous(asynchronous);
}

/// A run that resumes from its newest checkpoint and saves each step.
void train(
    const std::string& folder,
    const CheckpointManagerOptions& options,
    int64_t saves,
    Run& run) {
  SteppedTraining training(kValues);
  CheckpointManager checkpoints(folder, training.state, {}, options);
  checkpoints.load();
  for (; saves > 0; --saves) {
    const auto start = Clock::now();
    const auto step = training.step + 1;
    training.set(step);
    run.started = step;
    checkpoints.save(step);
    // An asynchronous save has waited for the previous one.
    run.durable = options.asynchronous() ? step - 1 : step;
    run.nanoseconds = (Clock::now() - start).count();
  }
}

struct Found {
  int killed = 0, old_file = 0, new_file = 0, hidden = 0;
};

/// The number of temporary names in a manager's folder.
int hidden_names(const std::string& folder) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const auto name = file.path().filename().string();
    if (name.front() == '.') {
      REQUIRE(name.find(".tmp.") != name.npos);
      ++count;
    } else {
      REQUIRE((name == "latest" || name.rfind("step-", 0) == 0));
    }
  }
  return count;
}

void kill_once(
    const std::string& folder,
    const CheckpointManagerOptions& options,
    Microseconds delay,
    Run& run,
    Found& found) {
  constexpr int64_t kForever = 1 << 30;
  const int64_t before = run.started;
  auto training = child([&] { train(folder, options, kForever, run); });
  while (run.durable <= before + 1 && !training.has_ended()) {
    ::usleep(100);
  }
  REQUIRE_FALSE(training.has_ended());
  wait_for(delay);
  kill(training);
  const int64_t durable = run.durable, started = run.started;
  const auto newest = newest_step_in(folder);
  INFO("killed in step " << started << ", " << durable << " was saved");
  REQUIRE(newest >= durable);
  REQUIRE(newest <= started);
  ++found.killed;
  ++(newest == durable ? found.old_file : found.new_file);
  // One more if it was killed before it removed the oldest.
  REQUIRE(detail::CheckpointFolder(folder).entries().size() <= 3);
  const auto hidden = hidden_names(folder);
  REQUIRE(hidden <= 1); // the next save removes it
  found.hidden += hidden;
}

void kill_runs(const std::string& extension, bool asynchronous, int count) {
  const TemporaryFolder parent;
  const auto folder = parent / "run";
  const auto options = options_of(extension, asynchronous);
  const SharedPage<Run> run;
  require_in_child([&] { train(folder, options, 5, *run); });
  const int64_t nanoseconds = run->nanoseconds;
  const auto save = nanoseconds / 1000 + 1;
  std::mt19937_64 random(4);
  Found found;
  for (int i = 0; i < count; ++i) {
    const Microseconds delay(random() % (2 * static_cast<uint64_t>(save)));
    kill_once(folder, options, delay, *run, found);
  }
  REQUIRE(found.killed == count); // the number of each is random
  std::cout << extension << (asynchronous ? ", asynchronous" : "") << ": "
            << found.killed << " kills, a save takes " << save
            << " us; found the last that was saved: " << found.old_file
            << ", a newer one: " << found.new_file
            << "; hidden names met: " << found.hidden << "\n";
}

TEST_CASE("kill -9 in a manager's save leaves a whole checkpoint") {
  kill_runs(".pt", false, kills(60));
  kill_runs(".safetensors", false, kills(40));
  kill_runs(".pt", true, kills(60));
}

} // namespace ddp::test::concurrent_saves_test
