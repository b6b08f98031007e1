// Many jobs, one after the other, and what they leave behind.
#include <tests/support/catch_plain.h>

#include <signal.h>

#include <launcher/sockets.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::cycles_test {

// A job that ends in one of several ways, some of them violent.
void run_job(int number, const std::string& folder) {
  // Its children ignore SIGTERM.
  LaunchedJob job(
      words(
          "--nproc-per-node " + std::to_string(1 + number % 4) +
          " --grace 0.05 WORKER environment MASTER_PORT then family" +
          (number % 5 == 0 ? " 0" : "")),
      {{{"TMPDIR", folder}}});
  const int way = number % 5;
  if (way != 0) {
    job.wait_for_output("ready");
    const pid_t target[] = {job.pid(), job.pid(), job.agent(), job.worker(0)};
    kill(target[way - 1], way == 1 ? SIGINT : SIGKILL);
  }
  if (way == 1) {
    job.send(SIGINT); // immediately: no further request
    job.send(SIGTERM); // the second request
  }
  const int code = way == 2 ? job.wait_unread() : job.wait();
  const int killed = 128 + SIGKILL;
  const int expected[] = {0, 128 + SIGINT, -SIGKILL, killed, killed};
  CHECK((code == expected[way] || (way == 1 && code == killed)));
  CHECK(job.leaves_nothing());
  const int port = std::stoi(matches(job.out(), "MASTER_PORT=(\\d+)").at(0)[0]);
  CHECK(listen_on("127.0.0.1", port).port == port);
}

TEST_CASE("many jobs leave no process, no file and no port", "[cycles]") {
  const TemporaryFolder folder;
  for (int i = 0; i < variable("DDP_TEST_CYCLES", 40); ++i) {
    CAPTURE(i);
    run_job(i, folder.path());
  }
  for (const std::string& name : folder.names()) {
    CAPTURE(name); // TSan has a file for a moment while a process starts
    CHECK(name.rfind("tsan.rodata.", 0) == 0);
  }
}

} // namespace ddp::test::cycles_test
