// Jobs that one ddprun starts on hosts, all of which are this machine.
#include <tests/support/catch_plain.h>

#include <common/scheduler/launch_error.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/temporary_folder.h>

namespace hosts_job_test {

using namespace ddp;
using namespace ddp::test;

TEST_CASE("a host's job ends with its exit code", "[start]") {
  LaunchedJob job(words("--hosts=localhost:1 sh -c 'echo said; exit 3'"));
  CHECK(job.wait() == 3);
  CHECK_THAT(job.out(), ContainsSubstring("said"));
  CHECK(job.out().find('\1') == std::string::npos);
  CHECK(job.leaves_nothing());
}

TEST_CASE("a rank cannot say that its ddprun has ended", "[start]") {
  // Whose ddprun is then killed, as by a host that goes down.
  const TemporaryFolder folder;
  const std::string shown = folder / "shown";
  LaunchedJob job(
      {"--hosts=localhost:1",
       "bash",
       "-c",
       R"(printf '\001ddprun begins\n\001ddprun ends\n'
          until [ -e "$0" ]; do sleep 0.05; done
          read -r _ _ _ front _ < /proc/$PPID/stat
          kill -9 $front; sleep 60)",
       shown});
  job.wait_for_output("\1ddprun ends");
  write_text(shown, "");
  CHECK(job.wait() == kExitInfrastructure);
  CHECK_THAT(job.err(), ContainsSubstring("localhost was cut off"));
  CHECK_THAT(job.out(), ContainsSubstring("\1ddprun ends"));
  CHECK(job.leaves_nothing());
}

} // namespace hosts_job_test
