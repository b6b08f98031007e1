// The notices about ranks that have not reached init_process_group.
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

#include <fcntl.h>

namespace ddp::test::init_notice_test {

const auto kSoon = ProcessGroupOptions().wait_notice(std::chrono::seconds(2));

/// Returns when the file contains `text`; the test's timeout bounds the wait.
void await(const std::string& path, const std::string& text) {
  while (read_text(path).find(text) == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

STARTED_TEST("rank 0 tells which ranks have not reached the group") {
  const auto path = folder + "warnings";
  if (own_rank() == 2) {
    await(
        path,
        " not joined the rendezvous at 127.0.0.1:"); // rank 1 may be late, too
  }
  const WarningListener listener([&](const std::string& text) {
    std::ofstream(path, std::ios::app) << text << std::endl;
  });
  init_process_group(kSoon).barrier();
}

STARTED_TEST("ranks that wait for rank 0 tell so") {
  const auto path = folder + "warnings";
  const std::string rank = std::getenv("RANK");
  if (rank == "0") {
    await(
        path,
        "init_process_group: rank 0 has not joined the rendezvous at "
        "127.0.0.1:");
  } else if (rank == "1") {
    const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    REQUIRE(dup2(file, STDERR_FILENO) == STDERR_FILENO);
  }
  init_process_group(kSoon).barrier();
}

} // namespace ddp::test::init_notice_test
