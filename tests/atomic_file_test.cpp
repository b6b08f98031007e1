#include <ddp/support/atomic_file.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <tests/support/child.h>
#include <tests/support/skip.h>

namespace ddp::test::atomic_file_test {

using detail::AtomicFile;

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

FOLDER_TEST("AtomicFile creates and replaces") {
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

FOLDER_TEST("AtomicFile overwrites what was written") {
  AtomicFile file(folder / "a.bin");
  file.write("0123", 4);
  file.overwrite(1, "xy", 2);
  file.write("45", 2);
  file.commit();
  CHECK(read_text(folder / "a.bin") == "0xy345");
}

FOLDER_TEST("AtomicFile without commit changes nothing") {
  const auto path = folder / "a.bin";
  write_text(path, "old");
  {
    AtomicFile file(path);
    file.write("new", 3);
    CHECK(read_text(path) == "old");
    // It has no name yet: a process that is killed here leaves nothing.
    CHECK(folder.names() == std::set<std::string>{"a.bin"});
  }
  CHECK(read_text(path) == "old");
  CHECK(folder.names() == std::set<std::string>{"a.bin"});
}

FOLDER_TEST("AtomicFile works in the current folder") {
  require_in_child([&] {
    REQUIRE(::chdir(folder.path().c_str()) == 0);
    replace("a.bin", "here");
  });
  CHECK(read_text(folder / "a.bin") == "here");
}

FOLDER_TEST("AtomicFile follows links") {
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

FOLDER_TEST("AtomicFile says what is wrong with a path") {
  CHECK_THROWS_WITH(
      AtomicFile(folder / "no/a.bin"),
      Has("no/a.bin", "No such file", "create the folder"));
  CHECK_THROWS_WITH(AtomicFile(folder.path()), Has("Is a directory"));
  CHECK_THROWS_WITH(AtomicFile("/dev/null"), Has("not a regular file"));
  write_text(folder / "file", "");
  CHECK_THROWS_WITH(AtomicFile(folder / "file/a.bin"), Has("Not a directory"));
  // No user, not even root, may create files there.
  CHECK_THROWS_AS(AtomicFile("/proc/self/a.bin"), c10::Error);
  if (::geteuid() != 0) {
    REQUIRE(::chmod(folder.path().c_str(), 0500) == 0);
    CHECK_THROWS_WITH(
        AtomicFile(folder / "a.bin"),
        Has("Permission denied", "choose a writable folder"));
    REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
  }
  CHECK(folder.names() == std::set<std::string>{"file"});
}

FOLDER_TEST("AtomicFile keeps the old file when space ends") {
  const auto path = folder / "a.bin";
  write_text(path, "old");
  require_in_child([&] {
    const rlimit limit{4096, 4096};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    REQUIRE_THROWS_WITH(
        replace(path, std::string(10000, 'x')),
        Has("File too large", "ulimit"));
  });
  CHECK(read_text(path) == "old");
  CHECK(folder.names() == std::set<std::string>{"a.bin"});
}

// Without /proc, an unnamed file cannot be given a name, so a child that sees
// only the test's folder writes as on a file system without O_TMPFILE.
FOLDER_TEST("AtomicFile works without O_TMPFILE") {
  write_text(folder / "a.bin", "old");
  constexpr int kSkipped = 77;
  const auto outcome =
      child([&] {
        if ((::geteuid() != 0 && ::unshare(CLONE_NEWUSER) != 0) ||
            ::chroot(folder.path().c_str()) != 0 || ::chdir("/") != 0) {
          ::_exit(kSkipped);
        }
        const auto count = [] {
          std::filesystem::directory_iterator entries("/");
          return std::distance(begin(entries), end(entries));
        };
        {
          AtomicFile discarded("/a.bin");
          discarded.write("new", 3);
          REQUIRE(count() == 2);
          REQUIRE(read_text("/a.bin") == "old");
        }
        REQUIRE(count() == 1);
        replace("/a.bin", "new");
      }).finish(kLong);
  if (outcome.exit_code == kSkipped) {
    skip("chroot is not allowed here");
  }
  INFO(outcome.output);
  CHECK(outcome.exit_code == 0);
  CHECK(read_text(folder / "a.bin") == "new");
  CHECK(folder.names() == std::set<std::string>{"a.bin"});
}

} // namespace ddp::test::atomic_file_test
