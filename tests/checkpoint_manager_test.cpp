#include <checkpoint/checkpoint_folder.h>
#include <tests/support/checkpoint_run.h>
#include <tests/support/ranks.h>
#include <tests/support/values.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/inotify.h>

namespace ddp::test::checkpoint_manager_test {

using Names = std::set<std::string>;

void flip_last_bit(const std::string& path) {
  auto text = read_text(path);
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
  write_text(path, text);
}

/// The files whose cached pages were dropped since the set was cleared.
Names& dropped() {
  static Names names;
  return names;
}

/// Counts how often files of a folder are opened.
class Opens {
 public:
  explicit Opens(const std::string& folder)
      : descriptor_(inotify_init1(IN_NONBLOCK)) {
    // Equal events in a row would be one: a file is closed in between.
    REQUIRE(
        inotify_add_watch(descriptor_, folder.c_str(), IN_OPEN | IN_CLOSE) >=
        0);
  }
  ~Opens() {
    ::close(descriptor_);
  }

  int of(const std::string& name) {
    int count = 0;
    alignas(inotify_event) char buffer[1 << 16];
    const auto bytes = ::read(descriptor_, buffer, sizeof(buffer));
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<inotify_event*>(buffer + at);
      count +=
          (event->mask & IN_OPEN) != 0 && event->len > 0 && name == event->name;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return count;
  }

 private:
  int descriptor_;
};

// Replaces the C library's function.
extern "C" int posix_fadvise(
    int descriptor,
    off_t offset,
    off_t bytes,
    int advice) noexcept {
  if (advice == POSIX_FADV_DONTNEED && offset == 0 && bytes == 0) {
    const auto link = "/proc/self/fd/" + std::to_string(descriptor);
    dropped().insert(std::filesystem::read_symlink(link).filename().string());
  }
  static auto* const next = reinterpret_cast<int (*)(int, off_t, off_t, int)>(
      dlsym(RTLD_NEXT, "posix_fadvise"));
  return next(descriptor, offset, bytes, advice);
}

/// The name of a file on a bad sector; empty if there is none.
std::string& unreadable() {
  static std::string name;
  return name;
}

// Replaces the C library's function.
extern "C" ssize_t pread(int file, void* data, size_t bytes, off_t offset) {
  if (!unreadable().empty()) {
    const auto link = "/proc/self/fd/" + std::to_string(file);
    if (std::filesystem::read_symlink(link).filename() == unreadable()) {
      errno = EIO;
      return -1;
    }
  }
  static auto* const next =
      reinterpret_cast<ssize_t (*)(int, void*, size_t, off_t)>(
          dlsym(RTLD_NEXT, "pread"));
  return next(file, data, bytes, offset);
}

RANKS_TEST("a run goes on from the newest checkpoint on all ranks") {
  for (const auto* extension : {".pt", ".safetensors"}) {
    for (const bool asynchronous : {false, true}) {
      const auto own = folder + "a/run" + extension +
          std::to_string(static_cast<int>(asynchronous));
      const auto options =
          keeping(2).extension(extension).asynchronous(asynchronous);
      {
        Run run(own, options, group);
        REQUIRE_FALSE(run.checkpoints.load());
        for (int64_t step = 1; step <= 5; ++step) {
          run.save(step);
        }
        run.checkpoints.wait();
      }
      group.barrier();
      Names names;
      for (const auto& file : std::filesystem::directory_iterator(own)) {
        names.insert(file.path().filename().string());
      }
      REQUIRE(
          names ==
          Names{
              "latest",
              std::string("step-4") + extension,
              std::string("step-5") + extension});
      Run resumed(
          own,
          keeping(2).load(
              LoadOptions().every_rank_reads(true).mmap(asynchronous)),
          group);
      const auto found = resumed.checkpoints.load();
      REQUIRE(found);
      REQUIRE(found->step == 5);
      REQUIRE(found->skipped.empty());
      REQUIRE(resumed.is_at(5));
      resumed.values.zero_();
      REQUIRE(resumed.state.load(found->path, group));
      REQUIRE(resumed.is_at(5));
      const auto latest = read_checkpoint_file(own + "/latest");
      REQUIRE(latest.toGenericDict().at("step").toInt() == 5);
    }
  }
}

RANKS_TEST("ranks that save different steps are told so, all of them") {
  Run run(folder + "run", {}, group);
  REQUIRE_THAT(
      ddp::test::error_on_all(
          group, [&] { run.save(group.rank() == 1 ? 4 : 3); }),
      Has("the ranks made different calls: ranks 0 and 2: "
          "CheckpointManager::save of step 3 in '",
          "'; rank 1: CheckpointManager::save of step 4"));
  REQUIRE_THAT(
      ddp::test::error_on_all(group, [&] { run.save(-1); }),
      Has("save of step -1 in '", "': expected 0 or more"));
  run.save(3); // nothing was written or lost
  REQUIRE(run.checkpoints.load()->step == 3);
}

RANKS_TEST("ranks with folders of their own are told so, all of them") {
  const auto own = c10::str(folder, "run", group.rank() % 2);
  Run run(own, {}, group);
  const auto reject = [&](const std::string& name, auto call) {
    REQUIRE_THAT(
        ddp::test::error_on_all(group, call),
        Has("made different calls: ranks 0 and 2: " + name,
            "run0'; rank 1: " + name,
            "run1'. Rank 0 reads and writes for all"));
  };
  reject("CheckpointManager::load in '", [&] { run.checkpoints.load(); });
  reject("CheckpointManager::save of step 3 in '", [&] { run.save(3); });
  REQUIRE_FALSE(std::filesystem::exists(own));
}

RANKS_TEST("a group that was forgotten on loading is told of") {
  Run(folder + "run", {}, group).save(3);
  Run forgetful(folder + "run");
  const auto texts = warnings_of([&] { forgetful.checkpoints.load(); });
  REQUIRE(texts.size() == 1);
  REQUIRE_THAT(
      texts[0],
      Has("a CheckpointManager was given a group of one",
          "each rank gets the state that rank 0 saved"));
}

FOLDER_TEST("the best checkpoints stay") {
  const auto nan = std::nan("");
  Run run(folder / "high", keeping(1, 2));
  run.save(1, 0.5);
  run.save(2, 0.875);
  run.save(3, nan);
  run.save(4, 0.25);
  run.save(5);
  run.save(6, 0.125);
  const auto names_in = [](const std::string& path) {
    Names names;
    for (const auto& entry : detail::CheckpointFolder(path).entries()) {
      names.insert(std::filesystem::path(entry.path).filename().string());
    }
    return names;
  };
  CHECK(
      names_in(folder / "high") ==
      Names{
          "step-1_metric-0.5.pt",
          "step-2_metric-0.875.pt",
          "step-6_metric-0.125.pt"});
  {
    Run lower(folder / "low", keeping(1, 1).higher_is_better(false));
    lower.save(1, -1e-7);
    lower.save(2, 3);
  }
  // Another run of the program also knows the metrics.
  Run resumed(folder / "low", keeping(1, 1).higher_is_better(false));
  CHECK(resumed.checkpoints.load()->step == 2);
  resumed.save(3, 0);
  CHECK(
      names_in(folder / "low") ==
      Names{"step-1_metric--1e-07.pt", "step-3_metric-0.pt"});
  resumed.save(3, 1); // the same step again
  CHECK(
      names_in(folder / "low") ==
      Names{"step-1_metric--1e-07.pt", "step-3_metric-1.pt"});
}

FOLDER_TEST("a damaged checkpoint is passed over and said so") {
  {
    Run run(folder.path(), keeping(2));
    run.save(1);
    run.save(2);
    run.save(3);
  }
  flip_last_bit(folder / "step-3.pt");

  Run resumed(folder.path(), keeping(2));
  const auto found = resumed.checkpoints.load();
  REQUIRE(found);
  CHECK(found->step == 2);
  CHECK(resumed.is_at(2));
  REQUIRE(found->skipped.size() == 1);
  CHECK_THAT(found->skipped[0], Has("step-3.pt", "corrupt"));

  // The damaged file does not count: two good ones are left.
  resumed.save(4);
  CHECK(
      folder.names() == Names{"latest", "step-2.pt", "step-3.pt", "step-4.pt"});
  // The damaged step is saved again, as a good file.
  Run again(folder.path(), keeping(2));
  CHECK(again.checkpoints.load()->step == 4);

  for (const auto* name : {"step-2.pt", "step-4.pt"}) {
    flip_last_bit(folder / name);
  }
  CHECK_THROWS_WITH(
      again.checkpoints.load(),
      Has("none of the checkpoints", "step-2.pt", "step-4.pt"));
}

FOLDER_TEST("a checkpoint that the disk cannot read is passed over") {
  for (const auto* extension : {".pt", ".safetensors"}) {
    const auto path = folder / extension;
    Run run(path, keeping(2).extension(extension));
    run.save(1);
    run.save(2);
    unreadable() = std::string("step-2") + extension;
    const auto found = run.checkpoints.load();
    CHECK_THROWS_WITH(
        verify_checkpoint_file(path + "/" + unreadable()),
        Has("Input/output error"));
    unreadable().clear();
    REQUIRE(found);
    CHECK(found->step == 1);
    REQUIRE(found->skipped.size() == 1);
    CHECK_THAT(found->skipped[0], Has("step-2", "Input/output error"));
  }
}

FOLDER_TEST("nothing is removed where the new checkpoint is damaged") {
  Run run(folder.path(), keeping(5));
  for (int64_t step = 1; step <= 3; ++step) {
    run.save(step);
  }
  detail::CheckpointFolder files(folder.path());
  flip_last_bit(folder / "step-3.pt");
  CHECK_THROWS_WITH(
      files.prune({3, std::nullopt, folder / "step-3.pt"}, {1}),
      Has("corrupt"));
  CHECK(
      folder.names() == Names{"latest", "step-1.pt", "step-2.pt", "step-3.pt"});
}

FOLDER_TEST("a new checkpoint is read back from the disk") {
  Run run(folder.path(), keeping(1));
  run.save(1);
  dropped().clear();
  run.save(2);
  CHECK(dropped() == Names{"step-2.pt"});
  CHECK(folder.names() == Names{"latest", "step-2.pt"});
}

FOLDER_TEST("names that a later run would not find are rejected") {
  for (const auto* extension : {"", "pt", ".safetensors.index.json", "/a.pt"}) {
    CHECK_THROWS_WITH(
        Run(folder / "a", keeping(1).extension(extension)),
        Has("extension is '", "expected .pt, .pth or .safetensors"));
  }
  CHECK_THROWS_WITH(
      Run(folder / "a", keeping(0)), Has("keep_last is 0, expected 1 or more"));
}

RANKS_TEST("loading reads the newest checkpoint once") {
  // A disk for each rank, as if each rank were on a separate host.
  const auto disk = [&](int rank) {
    return folder + "disk" + std::to_string(rank);
  };
  std::filesystem::create_directory(disk(group.rank()));
  std::filesystem::current_path(disk(group.rank()));
  Run run("run", keeping(2), group);
  run.save(1);
  run.save(2);
  if (group.rank() != 0) {
    std::filesystem::copy(disk(0) + "/run", "run");
  }
  group.barrier();
  for (const bool every_rank : {false, true}) {
    Opens opens("run");
    auto options = keeping(2);
    options.load(LoadOptions().every_rank_reads(every_rank));
    Run resumed("run", options, group);
    REQUIRE(resumed.checkpoints.load());
    REQUIRE(resumed.is_at(2));
    REQUIRE(opens.of("step-2.pt") == (every_rank || group.rank() == 0 ? 1 : 0));
  }
}

FOLDER_TEST("what is saved in the background is what was there") {
  for (const auto* extension : {".pt", ".safetensors"}) {
    const auto path = folder / extension;
    {
      Run run(
          path,
          keeping(9).asynchronous(true).extension(extension),
          {},
          1 << 20);
      for (int64_t step = 1; step <= 8; ++step) {
        run.save(step);
        run.values.fill_(-1); // immediately
      }
    } // the destructor waits
    for (const auto& entry : detail::CheckpointFolder(path).entries()) {
      Run resumed(path, {}, {}, 1 << 20);
      CHECK(resumed.state.load(entry.path));
      CHECK(resumed.is_at(entry.step));
    }
  }
}

FOLDER_TEST("a save in the background rejects what no file can contain") {
  Run run(
      folder.path(), keeping(1).asynchronous(true).extension(".safetensors"));
  run.values = run.values.to(torch::kComplexDouble);
  CHECK_THROWS_WITH(
      run.save(1),
      Has("'values' has dtype ComplexDouble", "write a .pt file, or convert"));
  run.values = run.values.to(torch::kComplexFloat);
  run.save(2);
}

RANKS_TEST("a save that fails is heard of on every rank") {
  for (const bool asynchronous : {false, true}) {
    const auto own =
        folder + "b" + std::to_string(static_cast<int>(asynchronous));
    Run run(own, keeping(2).asynchronous(asynchronous), group);
    run.save(1);
    run.checkpoints.wait();
    // A folder is in the file's place.
    if (group.rank() == 0) {
      std::filesystem::create_directory(own + "/step-2.pt");
    }
    if (asynchronous) {
      run.save(2);
    }
    REQUIRE_THROWS_WITH(
        run.save(asynchronous ? 3 : 2),
        Has("CheckpointManager::save on rank 0 of 3", "step-2.pt"));
    run.save(4); // it is reported once
    run.checkpoints.wait();
    if (group.rank() == 0) {
      std::filesystem::remove(own + "/step-2.pt");
    }
    Run resumed(own, {}, group);
    REQUIRE(resumed.checkpoints.load()->step == 4);
    REQUIRE(resumed.is_at(4));
  }
}

} // namespace ddp::test::checkpoint_manager_test
