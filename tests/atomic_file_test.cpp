#include <ddp/support/atomic_file.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tests/support/catch.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::atomic_file_test {

using detail::AtomicFile;

constexpr unsigned kWatchdogSeconds = 60;
constexpr int kPassed = 0, kFailed = 1, kSkipped = 77;

pid_t start_child(const std::function<int()>& work) {
  const auto pid = ::fork();
  if (pid == 0) {
    ::alarm(kWatchdogSeconds);
    int result = kFailed;
    try {
      result = work();
    } catch (const std::exception& error) {
      const std::string what = error.what();
      (void)!::write(STDERR_FILENO, what.data(), what.size());
    }
    ::_exit(result);
  }
  return pid;
}

// Its exit code, or less than 0 if a signal ended it.
int wait_child(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void replace(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

TEST_CASE("AtomicFile creates and replaces", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  const auto old_umask = ::umask(027);
  replace(path, "first");
  ::umask(old_umask);
  CHECK(read_text(path) == "first");
  CHECK(mode_of(path) == 0640);

  REQUIRE(::chmod(path.c_str(), 0604) == 0);
  replace(path, "2");
  CHECK(read_text(path) == "2");
  CHECK(mode_of(path) == 0604);
  CHECK(folder.names() == std::set<std::string>{"a.bin"});
}

TEST_CASE("AtomicFile overwrites what was written", "[atomic_file]") {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a.bin");
  file.write("0123", 4);
  file.overwrite(1, "xy", 2);
  file.write("45", 2);
  file.commit();
  CHECK(read_text(folder / "a.bin") == "0xy345");
}

TEST_CASE("AtomicFile without commit changes nothing", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  write_text(path, "old");
  {
    AtomicFile file(path);
    file.write("new", 3);
    CHECK(read_text(path) == "old");
  }
  CHECK(read_text(path) == "old");
  CHECK(folder.names() == std::set<std::string>{"a.bin"});
}

TEST_CASE("AtomicFile works in the current folder", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto child = start_child([&] {
    if (::chdir(folder.path().c_str()) != 0) {
      return kFailed;
    }
    replace("a.bin", "here");
    return kPassed;
  });
  CHECK(wait_child(child) == kPassed);
  CHECK(read_text(folder / "a.bin") == "here");
}

TEST_CASE("AtomicFile follows links", "[atomic_file]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_symlink("real/a.bin", folder / "link");
  std::filesystem::create_symlink(folder / "link", folder / "link2");
  replace(folder / "link2", "through a dangling link");
  CHECK(read_text(folder / "real/a.bin") == "through a dangling link");
  replace(folder / "link2", "again");
  CHECK(read_text(folder / "real/a.bin") == "again");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(std::filesystem::is_symlink(folder / "link2"));
}

TEST_CASE("AtomicFile says what is wrong with a path", "[atomic_file]") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(
      AtomicFile(folder / "no/a.bin"),
      Has("no/a.bin", "No such file", "create the folder"));
  CHECK_THROWS_WITH(AtomicFile(folder.path()), Has("Is a directory"));
  CHECK_THROWS_WITH(AtomicFile("/dev/null"), Has("not a regular file"));
  write_text(folder / "file", "");
  CHECK_THROWS_WITH(AtomicFile(folder / "file/a.bin"), Has("Not a directory"));
  // Nobody may create files there, not even root.
  CHECK_THROWS_AS(AtomicFile("/proc/self/a.bin"), c10::Error);
  if (::geteuid() != 0) {
    REQUIRE(::chmod(folder.path().c_str(), 0500) == 0);
    CHECK_THROWS_WITH(
        AtomicFile(folder / "a.bin"), Has("Permission denied", "may write to"));
    REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
  }
  CHECK(folder.names() == std::set<std::string>{"file"});
}

TEST_CASE("AtomicFile keeps the old file when space ends", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  write_text(path, "old");
  const auto child = start_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      return kFailed;
    }
    try {
      replace(path, std::string(10000, 'x'));
    } catch (const c10::Error& error) {
      const std::string what = error.what();
      return what.find("File too large") != what.npos &&
              what.find("ulimit") != what.npos
          ? kPassed
          : kFailed;
    }
    return kFailed;
  });
  CHECK(wait_child(child) == kPassed);
  CHECK(read_text(path) == "old");
  CHECK(folder.names() == std::set<std::string>{"a.bin"});
}

// Without /proc a nameless file cannot be given a name, so a child that sees
// only the test's folder has to go the way of file systems without O_TMPFILE.
TEST_CASE("AtomicFile works without O_TMPFILE", "[atomic_file]") {
  const TemporaryFolder folder;
  write_text(folder / "a.bin", "old");
  const auto child = start_child([&] {
    if (::geteuid() != 0 && ::unshare(CLONE_NEWUSER) != 0) {
      return kSkipped;
    }
    if (::chroot(folder.path().c_str()) != 0 || ::chdir("/") != 0) {
      return kSkipped;
    }
    const auto count = [] {
      std::filesystem::directory_iterator entries("/");
      return std::distance(begin(entries), end(entries));
    };
    {
      AtomicFile discarded("/a.bin");
      discarded.write("new", 3);
      if (count() != 2 || read_text("/a.bin") != "old") {
        return kFailed;
      }
    }
    if (count() != 1) {
      return kFailed;
    }
    replace("/a.bin", "new");
    return kPassed;
  });
  const int result = wait_child(child);
  if (result == kSkipped) {
    skip("chroot is not allowed here");
  }
  CHECK(result == kPassed);
  CHECK(read_text(folder / "a.bin") == "new");
  CHECK(folder.names() == std::set<std::string>{"a.bin"});
}

constexpr size_t kChunk = 128 * 1024;
constexpr int kChunks = 32;

// A child that replaces `path` in chunks, each only when the parent says so.
class SteppedWriter {
 public:
  explicit SteppedWriter(const std::string& path) {
    int go[2], done[2];
    REQUIRE((::pipe2(go, O_CLOEXEC) == 0 && ::pipe2(done, O_CLOEXEC) == 0));
    pid_ = start_child([&] {
      const std::string chunk(kChunk, 'n');
      AtomicFile file(path);
      for (int i = 0; i < kChunks; ++i) {
        char token = 0;
        if (::read(go[0], &token, 1) != 1) {
          return kFailed;
        }
        file.write(chunk.data(), chunk.size());
        if (::write(done[1], &token, 1) != 1) {
          return kFailed;
        }
      }
      file.commit();
      return kPassed;
    });
    ::close(go[0]);
    ::close(done[1]);
    go_ = go[1];
    done_ = done[0];
  }
  SteppedWriter(const SteppedWriter&) = delete;
  SteppedWriter& operator=(const SteppedWriter&) = delete;
  ~SteppedWriter() {
    ::close(go_);
    ::close(done_);
  }

  void start_step() {
    REQUIRE(::write(go_, "", 1) == 1);
  }

  void finish_step() {
    char token = 0;
    REQUIRE(::read(done_, &token, 1) == 1);
  }

  void kill_after(std::chrono::microseconds delay) {
    const auto end = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < end) {
    }
    REQUIRE(::kill(pid_, SIGKILL) == 0);
    wait_child(pid_);
  }

 private:
  pid_t pid_ = 0;
  int go_ = -1, done_ = -1;
};

TEST_CASE("AtomicFile survives kill -9 while writing", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  const std::string old(3 * kChunk, 'o');
  write_text(path, old);
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    SteppedWriter writer(path);
    const auto steps = random() % (kChunks - 1); // the last would commit
    for (unsigned step = 0; step < steps; ++step) {
      writer.start_step();
      writer.finish_step();
    }
    writer.start_step();
    writer.kill_after(std::chrono::microseconds(random() % 300));
    REQUIRE(read_text(path) == old);
    REQUIRE(folder.names() == std::set<std::string>{"a.bin"});
  }
}

TEST_CASE("AtomicFile survives kill -9 while committing", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  const std::string old(3 * kChunk, 'o'), fresh(kChunks * kChunk, 'n');
  std::mt19937 random(2);
  for (int i = 0; i < 30; ++i) {
    write_text(path, old);
    SteppedWriter writer(path);
    for (int step = 0; step < kChunks; ++step) {
      writer.start_step();
      writer.finish_step();
    }
    writer.kill_after(std::chrono::microseconds(random() % 8000));
    const auto content = read_text(path);
    REQUIRE((content == old || content == fresh));
  }
}

} // namespace ddp::test::atomic_file_test
