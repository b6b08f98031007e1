// The folders to which a CheckpointManager writes.
#include <tests/support/checkpoint_run.h>
#include <tests/support/ranks.h>

#include <dlfcn.h>
#include <fcntl.h>

namespace ddp::test::checkpoint_folder_test {

/// A flush to the disk that takes long.
struct SlowFlush {
  int calls_before = 0;
  std::function<void()> meanwhile; // runs in the first call after these
};

SlowFlush& slow_flush() {
  static SlowFlush flush;
  return flush;
}

// Replaces the C library's function.
extern "C" int fsync(int descriptor) {
  auto& flush = slow_flush();
  if (flush.meanwhile && flush.calls_before-- == 0) {
    std::exchange(flush.meanwhile, nullptr)();
  }
  static auto* const next =
      reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  return next(descriptor);
}

/// The error of symbolic links, or 0.
int& link_error() {
  static int error = 0;
  return error;
}

// Replaces the C library's function.
extern "C" int symlink(const char* target, const char* path) noexcept {
  if (link_error() != 0) {
    errno = link_error();
    return -1;
  }
  return symlinkat(target, AT_FDCWD, path);
}

FOLDER_TEST("a file system without links keeps checkpoints, and old ones end") {
  Run run(folder.path(), keeping(1));
  const auto texts = warnings_of([&] {
    int64_t step = 0;
    for (const int error : {EPERM, EOPNOTSUPP, ENOSYS}) {
      link_error() = error;
      run.save(++step);
      link_error() = 0;
    }
  });
  CHECK(folder.names() == std::set<std::string>{"step-3.pt"});
  REQUIRE(texts.size() == 1);
  CHECK_THAT(texts[0], Has("no link 'latest'", "no symbolic links"));
}

FOLDER_TEST("of two files of a step, the newer one is loaded") {
  Run(folder.path()).save(5);
  Run(folder / "other").save(5, 0.5);
  const auto first = folder / "step-5.pt";
  const auto second = folder / "step-5_metric-0.5.pt";
  std::filesystem::rename(folder / "other/step-5_metric-0.5.pt", second);
  const auto now = std::filesystem::last_write_time(first);
  for (const int hours : {-1, 1}) {
    std::filesystem::last_write_time(second, now + std::chrono::hours(hours));
    const auto found = Run(folder.path()).checkpoints.load();
    CHECK(found->path == (hours < 0 ? first : second));
  }
}

FOLDER_TEST("a folder of a later run is not written to") {
  Run(folder.path()).save(100);
  Run anew(folder.path());
  CHECK_THROWS_WITH(
      anew.save(1),
      Has("a checkpoint of step 100 that this run did not load",
          "remove the later checkpoints to go back"));
  CHECK(anew.checkpoints.load());
  anew.save(101);
  write_text(folder / "step-.pt", "x");
  write_text(folder / "step-7x.pt", "x");
  write_text(folder / "step-200_metric-.pt", "x");
  write_text(folder / "step-200.bin", "x");
  CHECK(Run(folder.path()).checkpoints.load()->step == 101);
  CHECK_THROWS_AS(Run(""), c10::ValueError);
  CHECK_THROWS_AS(anew.save(-1), c10::ValueError);
}

void in_epoch(const char* epoch, const std::function<void()>& action) {
  setenv("DDP_EPOCH", epoch, 1);
  action();
  unsetenv("DDP_EPOCH");
}

FOLDER_TEST("an epoch that others went on without writes no checkpoint") {
  auto cut_off = std::make_unique<Run>(folder.path());
  in_epoch("job:1", [&] { cut_off->save(10); });
  {
    Run others(folder.path());
    in_epoch("other:1", [&] { CHECK_THROWS(others.save(11)); });
    in_epoch("job:1", [&] { CHECK_THROWS(others.save(11)); });
    in_epoch("job:2", [&] {
      CHECK(others.checkpoints.load()->step == 10);
      others.save(11); // it does not wait for the lock
    });
  }
  in_epoch("job:1", [&] {
    CHECK_THROWS_WITH(
        cut_off->save(20),
        Has("was taken over by a later epoch of this job (job:2"));
  });
  CHECK_FALSE(std::filesystem::exists(folder / "step-20.pt"));
  in_epoch("job:3", [&] { cut_off->save(21); }); // it is in the group again
  // A later job takes over the folder of an earlier one, but not vice versa.
  cut_off.reset();
  Run next(folder.path());
  in_epoch("next:1", [&] { CHECK(next.checkpoints.load()->step == 21); });
  CHECK(read_text(folder / ".epoch") == "job:3"); // it was only read
  in_epoch("next:1", [&] { next.save(22); });
  write_text(folder / ".epoch", "last:1");
  in_epoch("next:2", [&] {
    CHECK_THROWS_WITH(
        next.save(23), Has("was taken over by another job (last:1"));
  });
}

// Flushing the file hangs, or flushing the folder after the file is in place.
FOLDER_TEST("a save that ends when others have gone on does no harm") {
  for (const int calls_before : {0, 1}) {
    for (const auto* extension : {".pt", ".safetensors"}) {
      const auto path = (folder / std::to_string(calls_before)) + extension;
      const auto options = keeping(1).extension(extension);
      const int64_t resumed = calls_before == 0 ? 10 : 20;
      Run cut_off(path, options);
      Run others(path, options);
      in_epoch("job:1", [&] { cut_off.save(10); });
      slow_flush() = {calls_before, [&] {
                        in_epoch("job:2", [&] {
                          CHECK(others.checkpoints.load()->step == resumed);
                          others.save(resumed + 10);
                          others.values.zero_();
                        });
                        setenv("DDP_EPOCH", "job:1", 1);
                      }};
      in_epoch("job:1", [&] {
        CHECK_THROWS_WITH(
            cut_off.save(20),
            Has("was taken over by a later epoch of this job (job:2"));
      });
      CHECK(
          std::filesystem::read_symlink(path + "/latest") ==
          "step-" + std::to_string(resumed + 10) + extension);
      in_epoch("job:3", [&] {
        const auto found = others.checkpoints.load();
        REQUIRE(found);
        CHECK(others.is_at(resumed + 10));
      });
    }
  }
}

FOLDER_TEST("a folder is looked at before the training") {
  CHECK(warnings_of([&] { Run(folder / "not/there/yet"); }).empty());
  CHECK(folder.names().empty());
  write_text(folder / "file", "x");
  for (const char* name : {"file", "file/checkpoints"}) {
    CHECK_THROWS_WITH(Run(folder / name), Has("/file' is a file"));
  }
}

FOLDER_TEST(
    "a folder that cannot be written to is told of before the training") {
  std::filesystem::create_directories(folder / "open/closed");
  using std::filesystem::perms;
  permissions(
      folder.path(), perms::owner_all | perms::group_exec | perms::others_exec);
  permissions(
      folder / "open/closed",
      perms::owner_read | perms::group_read | perms::others_read);
  ranks(1, [&](ProcessGroup) {
    REQUIRE((getuid() != 0 || setuid(65534) == 0)); // root may write anywhere
    for (const char* name : {"open/closed", "open/closed/new"}) {
      const auto texts = warnings_of([&] { Run(folder / name); });
      REQUIRE(texts.size() == 1);
      REQUIRE_THAT(texts[0], Has("cannot save to '" + (folder / name) + "'"));
    }
  });
}

RANKS_TEST("a relative folder is that of the construction") {
  for (const char* name : {"here", "there"}) {
    std::filesystem::create_directory(folder + name);
  }
  std::filesystem::current_path(folder + "here");
  auto options = keeping(2).asynchronous(true);
  options.load(LoadOptions().every_rank_reads(true));
  Run run("run", options, group);
  std::filesystem::current_path(folder + "there");
  run.save(1);
  run.checkpoints.wait();
  run.values.zero_();
  const auto found = run.checkpoints.load();
  REQUIRE(found);
  REQUIRE(found->path == "run/step-1.pt");
  REQUIRE(run.is_at(1));
  REQUIRE(std::filesystem::exists(folder + "here/run/step-1.pt"));
  REQUIRE(std::filesystem::is_empty(folder + "there"));
}

FOLDER_TEST("a step that is saved again without a metric keeps its metric") {
  Run run(folder.path(), keeping(1, 1));
  run.save(1, 0.5);
  run.save(1);
  run.save(2, 0.25);
  CHECK(
      folder.names() ==
      std::set<std::string>{
          "latest", "step-1_metric-0.5.pt", "step-2_metric-0.25.pt"});
}

FOLDER_TEST("only what killed saves of checkpoints left is removed") {
  Run run(folder.path(), keeping(1));
  run.save(1);
  for (const auto* name :
       {".step-1.pt.tmp.7.0",
        ".step-2_metric-0.5.safetensors.tmp.7.0",
        ".latest.tmp.7",
        ".latest_ema.pt.tmp.7.0",
        ".step-best.pt.tmp.7.0"}) {
    write_text(folder / name, "x");
  }
  run.save(2);
  CHECK(
      folder.names() ==
      std::set<std::string>{
          ".latest_ema.pt.tmp.7.0",
          ".step-best.pt.tmp.7.0",
          "latest",
          "step-2.pt"});
}

FOLDER_TEST("one process at a time writes to a folder") {
  {
    Run run(folder.path());
    run.save(5);
    CHECK_THROWS_WITH(run.save(4), Has("step 4 follows step 5"));
    Run other(folder.path());
    CHECK(other.checkpoints.load()->step == 5); // reading does no harm
    CHECK_THROWS_WITH(other.save(6), Has("an earlier manager of this program"));
    run.save(6);
  }
  Run after(folder.path());
  CHECK(after.checkpoints.load()->step == 6);
  after.save(7);
}

} // namespace ddp::test::checkpoint_folder_test
