#include <dlfcn.h>
#include <tests/support/ranks.h>
#include <tests/support/stepped_training.h>

#include <cerrno>

namespace ddp::test::failing_disk_test {

constexpr int kRanks = 3;

/// A way to save a training, into a separate folder.
class Saver {
 public:
  Saver(const std::string& parent, const char* extension, const char* way)
      : way_(way),
        folder_(parent + "/" + way + extension),
        extension_(extension) {}

  /// Collective.
  void start(const ProcessGroup& group) {
    group_ = group;
    if (group.rank() == 0) {
      std::filesystem::create_directories(folder_);
    }
    if (way_ != "file") {
      const auto options = CheckpointManagerOptions()
                               .keep_last(2)
                               .extension(extension_)
                               .asynchronous(way_ == "asynchronous");
      manager_.emplace(folder_, training.state, group, options);
    }
  }

  void save(int64_t step) {
    training.set(step);
    if (!manager_) {
      training.state.save(path(), group_);
      return;
    }
    manager_->save(step);
    manager_->wait();
  }

  /// The error of `save`, which must be the same on every rank; "" for none.
  std::string try_save(int64_t step) {
    const auto error = words_of([&] { save(step); });
    for (const auto& other : group_.all_gather(error)) {
      REQUIRE(other == error);
    }
    return error;
  }

  /// The newest step in the folder, which must be complete.
  int64_t saved_step() const {
    return manager_ ? newest_step_in(folder_) : step_of(path());
  }

  /// The names in the folder that are not checkpoints.
  std::vector<std::string> left_behind() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const auto name = entry.path().filename().string();
      if (name != "latest" && entry.path().extension() != extension_) {
        names.push_back(name);
      }
    }
    return names;
  }

  /// Whether the next save removes such names.
  bool cleans_up() const {
    return manager_.has_value();
  }

  const std::string& folder() const {
    return folder_;
  }

  const ProcessGroup& group() const {
    return group_;
  }

  SteppedTraining training;

 private:
  std::string path() const {
    return folder_ + "/run" + extension_;
  }

  std::string way_, folder_, extension_;
  ProcessGroup group_;
  std::optional<CheckpointManager> manager_;
};

/// The preloaded library.
struct Disk {
  template <typename Function>
  static Function* find(const char* name) {
    auto* function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
    REQUIRE(function != nullptr);
    return function;
  }

  void (*fail)(const char*, const char*, int, int, bool) =
      find<void(const char*, const char*, int, int, bool)>("ddp_fail_disk");
  int (*heal)() = find<int()>("ddp_heal_disk");
};

struct Failure {
  std::string function; // "*": all except close, from `nth` on
  int nth;
  int error;
  bool no_unnamed;
};

// A close that fails after the file is on the disk does no harm, and neither
// does a failed removal before the name is used. Without O_TMPFILE the file
// gets a name.
bool may_be_harmless(const Failure& failure) {
  return failure.function == "close" || failure.function == "remove" ||
      (failure.function == "open" && failure.nth == 1 && !failure.no_unnamed);
}

/// The reason, and what to do about it.
void require_reason(const std::string& seen, const Failure& failure) {
  const std::map<int, const char*> advice{
      {ENOSPC, "free space"},
      {EDQUOT, "free space"},
      {EROFS, "choose a writable folder"}};
  const auto found = advice.find(failure.error);
  REQUIRE_THAT(
      seen, Has("rank 0 of 3", std::generic_category().message(failure.error)));
  if (found != advice.end()) { // reading a new file back is not writing
    REQUIRE_THAT(seen, Has(found->second) || Has("cannot read '"));
  }
}

struct Counts {
  int cases = 0, thrown = 0, with_new_file = 0;
};

void require_clean(const Saver& saver, const Failure& failure) {
  for (const auto& name : saver.left_behind()) {
    REQUIRE(failure.function == "*"); // so it could not be removed
    REQUIRE(name.find(".tmp.") != name.npos);
    REQUIRE(name.front() == '.');
    if (!saver.cleans_up()) {
      std::filesystem::remove(saver.folder() + "/" + name);
    }
  }
}

/// Saves step `step` with the failure, after which `step - 1` or `step` exists,
/// and then step `step + 1`. Returns false if nothing failed.
bool survives(
    Saver& saver,
    const Disk& disk,
    const Failure& failure,
    int64_t step,
    Counts& counts) {
  const bool writes = saver.group().rank() == 0;
  INFO(
      "call " << failure.nth << " of " << failure.function << ", error "
              << failure.error << (failure.no_unnamed ? ", named" : ""));
  if (writes) {
    disk.fail(
        failure.function.c_str(),
        saver.folder().c_str(),
        failure.nth,
        failure.error,
        failure.no_unnamed);
  }
  const auto error = saver.try_save(step);
  const bool failed =
      saver.group().broadcast(writes ? std::to_string(disk.heal()) : "") != "0";
  INFO(error);
  if (!failed || failure.error == 0) {
    REQUIRE(error.empty());
  } else if (error.empty()) {
    REQUIRE(may_be_harmless(failure));
  } else {
    require_reason(error, failure);
    REQUIRE_THAT(error, Has(saver.folder()));
  }
  if (writes) {
    const auto saved = saver.saved_step();
    REQUIRE((saved == step || (saved == step - 1 && !error.empty())));
    ++counts.cases;
    counts.thrown += error.empty() ? 0 : 1;
    counts.with_new_file += !error.empty() && saved == step ? 1 : 0;
    require_clean(saver, failure);
  }
  saver.save(step + 1);
  if (writes) {
    REQUIRE(saver.saved_step() == step + 1);
    REQUIRE(saver.left_behind().empty());
  }
  return failed;
}

/// Fails the first call of a function, then the second, until there are no
/// more.
void fail_each_call(
    Saver& saver,
    const Disk& disk,
    Failure failure,
    int64_t& step,
    Counts& counts) {
  const bool short_writes = failure.error == 0;
  const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS};
  bool failed = true;
  for (failure.nth = 1; failed; ++failure.nth, step += 2) {
    failure.error = short_writes ? 0 : errors[failure.nth % 4];
    failed = survives(saver, disk, failure, step, counts);
  }
}

void fail_everywhere(Saver& saver, const Disk& disk, Counts& counts) {
  int64_t step = 0;
  saver.save(step++);
  for (const auto* function :
       {"open",
        "opendir",
        "pwrite",
        "fchmod",
        "fsync",
        "linkat",
        "symlink",
        "rename",
        "unlink",
        "remove",
        "close",
        "*"}) {
    fail_each_call(saver, disk, {function, 1, EIO, false}, step, counts);
  }
  for (const auto* function : {"open", "fsync", "rename", "*"}) {
    fail_each_call(saver, disk, {function, 1, EIO, true}, step, counts);
  }
  fail_each_call(saver, disk, {"pwrite", 1, 0, false}, step, counts);
}

void check_way(
    const char* way,
    const std::vector<const char*>& extensions = {".pt", ".safetensors"}) {
  const SharedFolder shared;
  // The dynamic linker splits LD_PRELOAD at spaces, which a path may have.
  const auto link = shared.path + "failing_disk.so";
  if (shared.own) {
    std::filesystem::create_symlink(variable("DDP_FAILING_DISK"), link);
  }
  ranks(kRanks, RankOptions().environment({{"LD_PRELOAD", link}}), [&] {
    const auto group = init_process_group();
    const Disk disk;
    Counts counts;
    for (const auto* extension : extensions) {
      Saver saver(shared.path + "data", extension, way);
      saver.start(group);
      fail_everywhere(saver, disk, counts);
    }
    if (group.rank() == 0) {
      REQUIRE(counts.thrown > counts.cases / 2);
      REQUIRE(counts.with_new_file > 0);
    }
  });
}

TEST_CASE("a failing disk leaves one whole file, old or new") {
  check_way("file");
}

TEST_CASE("a failing disk leaves whole checkpoints in a manager's folder") {
  check_way("synchronous");
}

TEST_CASE("a failing disk is heard of from the background") {
  check_way("asynchronous", {".pt"});
}

} // namespace ddp::test::failing_disk_test
