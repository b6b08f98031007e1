// Jobs whose nodes join, leave, crash and are cut off, in any order.

#include <tests/launcher/simulated_job.h>

namespace ddp::test::rendezvous_schedules_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Random events; then all links are mended, and no further event happens.
void run_schedule(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  const int most = 2 + pick(5);
  const int least = 1 + pick(most);
  auto with = settings(least, most, pick(4));
  with.etcd.resize(pick(2) == 0 ? 1 : 0);
  with.loses_entries = true;
  with.most_watched = 1 + static_cast<int>(seed % 3);
  SimulatedJob job(with, 0, seed);
  const bool wants_ranks = pick(3) == 0;
  const auto add_node = [&] {
    const bool serves = job.count() == 0 && !with.has_service();
    job.add_node(serves, wants_ranks && pick(3) != 0 ? pick(most) : -1);
  };
  for (int i = most - pick(2); i > 0; --i) {
    add_node();
  }
  job.run_for(milliseconds(pick(15000)));
  // Slow schedules show the results of an event; fast ones show events in
  // between.
  const int pace = pick(2) == 0 ? 25000 : 2500;
  for (int events = 1 + pick(pace > 10000 ? 6 : 20); events > 0; --events) {
    const int node = pick(job.count());
    switch (pick(9)) {
      case 0:
        add_node();
        break;
      case 1:
        job.lives(node) ? job.leave(node) : (void)0;
        break;
      case 2:
        job.lives(node) ? job.crash(node) : (void)0;
        break;
      case 3:
        job.lives(node) ? job.fail_rank(node, pick(2) == 0) : (void)0;
        break;
      case 4: // two parts
        for (int a = 0, side = random(); a < job.count(); ++a) {
          for (int b = job.kServer; b < a; ++b) {
            job.set_link(
                a, b, ((side >> (a % 31) ^ side >> ((b + 31) % 31)) & 1) == 0);
          }
        }
        break;
      case 5: // one link
        job.set_link(node, pick(job.count() + 1) + job.kServer, false);
        break;
      case 6:
        job.mend_all();
        break;
      case 7:
        job.lives(node) ? job.finish_ranks(node) : (void)0;
        break;
      case 8:
        job.suspend(node, milliseconds(pick(20000)));
        break;
    }
    job.run_for(milliseconds(pick(pace)));
  }
  job.mend_all();
  job.run_for(seconds(120));
  // Living nodes run in one epoch, are spares, or wait for others.
  int lives = 0;
  int runs = 0;
  int connected = 0; // counts one of those that ask for the same place
  std::set<int> asked;
  for (int i = 0; i < job.count(); ++i) {
    lives += job.lives(i) ? 1 : 0;
    runs += job.lives(i) && job.node(i).epoch != 0 ? 1 : 0;
    const auto& machine = *job.node(i).machine;
    const int wanted = machine.self().wanted_rank;
    connected += job.lives(i) && machine.membership().nodes.size() > 0 &&
        (wanted < 0 || asked.insert(wanted).second);
  }
  CAPTURE(seed, least, most, lives, runs, job.faults(), job.history());
  REQUIRE(job.faults().empty());
  const bool some_finished =
      job.history().find("ranks finish") != std::string::npos;
  if (connected >= least && !some_finished) {
    REQUIRE(runs == std::min(connected, most));
  }
}

TEST_CASE("A schedule that once failed passes", "[schedules]") {
  run_schedule(1515);
}

TEST_CASE("Random schedules never split a job nor hold it up", "[schedules]") {
  const int first = variable("DDP_TEST_SEED", 0);
  for (int i = 0; i < variable("DDP_TEST_SCHEDULES", 10000); ++i) {
    run_schedule(static_cast<unsigned>(first + i));
  }
}

} // namespace ddp::test::rendezvous_schedules_test
