// Cases of jobs whose nodes join, leave, crash and are cut off.
#include <tests/launcher/simulated_job.h>

namespace ddp::test::rendezvous_scenarios_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Job = SimulatedJob;

// A job of which all nodes have running ranks.
struct RunningJob : Job {
  RunningJob(const SimulatedOptions& settings, int nodes, unsigned seed = 1)
      : Job(settings, nodes, seed) {
    run_for(seconds(20));
    REQUIRE_RUNNING(*this, std::string("0123").substr(0, nodes));
  }

  void run_until(Membership::Phase phase) {
    while (faults().empty() && node(0).machine->membership().phase != phase) {
      run_for(milliseconds(10));
    }
    INFO(history());
    REQUIRE(faults().empty());
  }
};

// Requires that all living nodes end with this code.
void require_end(Job& job, int code) {
  std::vector<int> living;
  for (int i = 0; i < job.count(); ++i) {
    if (job.lives(i)) {
      living.push_back(i);
    }
  }
  CAPTURE(job.history());
  REQUIRE_FALSE(job.run_for(seconds(60)));
  for (int i : living) {
    CHECK(job.node(i).exit_code == code);
  }
}

// Nodes of the next job, which arrive now, run once this job has ended.
void require_next(RunningJob& job) {
  job.add_node();
  job.add_node();
  job.run_for(seconds(30));
  REQUIRE_FALSE(job.lives(0));
  job.add_node(true);
  job.run_for(seconds(20));
  REQUIRE_RUNNING(job, "345");
}

TEST_CASE("Fewer nodes start after the last call", "[unit]") {
  Job job(settings(2, 4), 3);
  job.run_for(seconds(2));
  REQUIRE_RUNNING(job, "");
  job.run_for(seconds(5));
  REQUIRE_RUNNING(job, "012");
}

TEST_CASE("A failed rank ends the job everywhere with its code", "[unit]") {
  RunningJob job(settings(3, 3), 3);
  job.fail_rank(1, true);
  job.fail_rank(2);
  require_end(job, 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(job.node(i).machine->membership().failure->node == "id2");
  }
}

TEST_CASE(
    "A job that fails and is ended, too, has the failure's code",
    "[unit]") {
  RunningJob job(settings(3, 3), 3);
  job.fail_rank(1);
  job.run_for(milliseconds(500));
  job.end_job(0);
  require_end(job, 3);
}

// The reason of the end is known before the log is lost.
TEST_CASE("A job that fails as its log's host leaves ends", "[unit]") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    RunningJob job(settings(1, 2), 2, seed);
    job.fail_rank(1);
    job.leave(0);
    CAPTURE(seed, job.history());
    REQUIRE_FALSE(job.run_for(seconds(60)));
  }
}

// The loss of a node explains them: without the signal, the others would
// continue.
TEST_CASE("A job of consequences that is ended does not go on", "[unit]") {
  RunningJob job(settings(2, 3), 3);
  job.crash(2);
  job.fail_rank(0, true);
  job.run_for(milliseconds(500));
  job.end_job(1);
  require_end(job, 130);
}

TEST_CASE("A failed rank restarts all nodes, counted alike", "[unit]") {
  RunningJob job(settings(3, 3, 2), 3);
  for (int restart = 1; restart <= 2; ++restart) {
    job.fail_rank(restart);
    job.run_for(seconds(8));
    REQUIRE_RUNNING(job, "012");
    for (int i = 0; i < 3; ++i) {
      REQUIRE(job.node(i).machine->membership().plan.restarts == restart);
    }
  }
  job.fail_rank(0);
  require_end(job, 3);
}

TEST_CASE("A job hangs only if all nodes are quiet at one time", "[unit]") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    RunningJob job(settings(3, 3), 3, seed);
    const auto watch = [&](const std::string& quiet) {
      for (int time = 0; time < 10; ++time) {
        for (int i = 0; i < 3; ++i) {
          job.node(i).machine->ranks_quiet(
              quiet.find(std::to_string(i)) != std::string::npos, "hangs");
        }
        job.run_for(seconds(1));
      }
    };
    for (const char* quiet : {"01", "2", "12", "01"}) {
      watch(quiet);
      REQUIRE_RUNNING(job, "012");
    }
    job.finish_ranks(2);
    watch("0"); // node 1 waited for node 2
    REQUIRE_RUNNING(job, "01");
    watch("01");
    REQUIRE_FALSE(job.run_for(seconds(60)));
    REQUIRE_RUNNING(job, "");
    for (int i = 0; i < 3; ++i) {
      REQUIRE(job.node(i).exit_code == 124);
      REQUIRE(job.node(i).machine->membership().hangs);
    }
  }
}

TEST_CASE("A hang is over once the ranks are started again", "[unit]") {
  RunningJob job(settings(2, 2, 1), 2);
  const auto& first = *job.node(0).machine;
  for (int looks = 0; looks < 100 && !first.membership().hangs; ++looks) {
    for (int i = 0; i < 2; ++i) {
      job.node(i).machine->ranks_quiet(true, "hangs");
    }
    job.run_for(milliseconds(100));
  }
  REQUIRE(first.membership().hangs);
  job.run_for(seconds(8));
  REQUIRE_RUNNING(job, "01");
  REQUIRE(first.membership().plan.restarts == 1);
  REQUIRE_FALSE(first.membership().hangs);
  REQUIRE_FALSE(first.membership().is_quiet("id1"));
}

TEST_CASE("All end with 0 once all ranks have finished", "[unit]") {
  RunningJob job(settings(3, 3), 3);
  job.finish_ranks(0);
  job.run_for(seconds(30));
  REQUIRE(job.lives(0));
  job.finish_ranks(1);
  job.finish_ranks(2);
  require_end(job, 0);
}

// The old log is served for some time, until all have read how the job ended.
TEST_CASE("The next job begins where one has just ended", "[unit]") {
  const bool is_fixed = GENERATE(true, false);
  for (unsigned seed = 1; seed <= 100; ++seed) {
    CAPTURE(is_fixed, seed);
    RunningJob job(settings(is_fixed ? 3 : 2, 3), 3, seed);
    for (int i = 0; i < 3; ++i) {
      job.finish_ranks(i);
    }
    job.run_until(Membership::Phase::kEnded);
    job.set_link(0, 2, false);
    require_next(job);
  }
}

TEST_CASE("The next job waits while ranks of the last one stop", "[unit]") {
  const bool is_fixed = GENERATE(true, false);
  for (unsigned seed = 1; seed <= 100; ++seed) {
    CAPTURE(is_fixed, seed);
    RunningJob job(settings(is_fixed ? 3 : 2, 3), 3, seed);
    is_fixed ? job.leave(2) : job.end_job(2); // as a pod that is replaced
    job.run_until(Membership::Phase::kStopping);
    require_next(job);
  }
}

// A node that comes while the job runs learns after 15 s that it is too many.
TEST_CASE("The next job at a server waits while ranks stop", "[unit]") {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    const bool crashes = seed % 2 == 0;
    CAPTURE(seed);
    RunningJob job(at_server(settings(3, 3)), 3, seed);
    job.add_node();
    job.run_for(seconds(13));
    job.leave(2);
    job.run_until(Membership::Phase::kStopping);
    job.add_node();
    if (crashes) {
      job.crash(0);
      job.crash(1);
    }
    job.run_for(seconds(40));
    REQUIRE_FALSE(job.lives(0));
    job.add_node();
    job.run_for(seconds(10));
    REQUIRE_RUNNING(job, "345");
  }
}

TEST_CASE("A node that comes late gets ranks, without a restart", "[unit]") {
  RunningJob job(settings(2, 4), 2);
  job.add_node();
  job.run_for(seconds(12));
  REQUIRE_RUNNING(job, "012");
  REQUIRE(job.node(2).machine->membership().plan.restarts == 0);
  REQUIRE(job.node(2).machine->membership().plan.index_of("id2") == 2);
}

TEST_CASE("A node more than the job has places", "[unit]") {
  for (int restarts : {0, 1}) {
    RunningJob job(settings(2, 2, restarts), 2);
    const int spare = job.add_node();
    job.run_for(seconds(5));
    REQUIRE_RUNNING(job, "01");
    if (restarts == 0) { // is there by mistake
      REQUIRE(job.node(spare).exit_code == 2);
      REQUIRE_THAT(
          job.node(spare).exit_text, Has("has all its nodes (n0, n1)"));
    } else { // waits for another's place
      REQUIRE(job.lives(spare));
    }
  }
}

TEST_CASE(
    "The next job at a server begins once the last one stopped",
    "[unit]") {
  const bool waits_already = GENERATE(false, true);
  for (unsigned seed = 1; seed <= 100; ++seed) {
    CAPTURE(waits_already, seed);
    // A fixed job rejects nodes while it runs.
    RunningJob job(at_server(settings(waits_already ? 1 : 2, 2)), 2, seed);
    const auto add_next = [&] {
      job.add_node();
      job.add_node();
      job.run_for(seconds(3));
    };
    if (waits_already) {
      add_next();
    }
    job.set_link(0, job.kServer, false);
    job.set_link(1, job.kServer, false);
    if (!waits_already) {
      add_next();
    }
    job.run_for(seconds(40));
    REQUIRE_RUNNING(job, "23");
  }
}

TEST_CASE("A fixed job ends where a node is lost", "[unit]") {
  RunningJob job(settings(3, 3), 3);
  job.crash(1);
  require_end(job, 75);
  REQUIRE_THAT(job.node(2).exit_text, Has("node n1 has not responded"));
}

TEST_CASE(
    "A fixed job with restarts waits for a lost node's successor",
    "[unit]") {
  RunningJob job(settings(3, 3, 1), 3);
  job.crash(1);
  job.run_for(seconds(30));
  REQUIRE_RUNNING(job, "");
  job.add_node();
  job.run_for(seconds(5));
  REQUIRE_RUNNING(job, "023");
}

TEST_CASE("All end where the node that serves the log is lost", "[unit]") {
  RunningJob job(settings(1, 4, 1), 4);
  SECTION("dead") {
    job.crash(0);
  }
  SECTION("cut off") {
    for (int i = 1; i < 4; ++i) {
      job.set_link(0, i, false);
    }
  }
  SECTION("gone of its own will") {
    job.leave(0);
  }
  job.run_for(seconds(60));
  for (int i = 1; i < 4; ++i) {
    CAPTURE(i, job.history());
    REQUIRE(job.node(i).exit_code == 75);
  }
  if (!job.lives(0)) { // the job restarts
    job.add_node(true);
    job.add_node();
    job.run_for(seconds(20));
    REQUIRE_RUNNING(job, "45");
  }
}

TEST_CASE("A log may answer after a node was suspended", "[unit]") {
  const bool answers = GENERATE(true, false);
  NodeStateMachine::Time now;
  NodeInfo self;
  self.id = "a";
  NodeStateMachine machine(settings(2, 2), self, now);
  machine.connected("10.0.0.1", true, now);
  now += seconds(30);
  machine.tick(now);
  CHECK(machine.is_connected());
  REQUIRE(machine.deadline() == now + seconds(5));
  now += seconds(5);
  if (answers) {
    machine.beats({}, now);
  }
  machine.tick(now);
  CHECK(machine.is_connected() == answers);
}

// This works however many of the first nodes are lost together.
TEST_CASE("The nodes of a large job watch some of each other", "[unit]") {
  NodeStateMachine::Time now;
  NodeInfo self;
  self.id = "n99";
  NodeStateMachine machine(at_server(settings(100, 100)), self, now);
  machine.connected("10.0.0.1", false, now);
  Entry join = machine.take_actions().at(0).entry;
  std::map<std::string, int64_t> counts;
  for (int i = 0; i < 100; ++i) {
    join.from = join.node.id = "n" + std::to_string(i);
    counts[join.from] = 0;
    machine.entry(join, now);
  }
  std::set<std::string> lost;
  const auto pass = [&](int time, int first_alive) {
    for (int i = 0; i < time; ++i) {
      now += seconds(1);
      for (auto& [id, count] : counts) {
        count += std::stoi(id.substr(1)) >= first_alive ? 1 : 0;
      }
      machine.beats(counts, now);
      for (const auto& action : machine.take_actions()) {
        lost.insert(action.entry.about);
      }
    }
  };
  pass(1, 0);
  CHECK(machine.watched().size() == 32);
  pass(60, 0);
  CHECK(machine.watched().size() == 32);
  pass(60, 50); // others report the earlier ones
  CHECK(lost.empty());
  CHECK(machine.watched().size() == 50 + 32);
  pass(60, 99);
  CHECK(lost.size() == 99);
}

TEST_CASE("The nodes that reach a service go on", "[unit]") {
  RunningJob job(at_server(settings(1, 4)), 4);
  SECTION("dead") {
    job.crash(0);
    job.run_for(seconds(30));
    REQUIRE_RUNNING(job, "123");
  }
  SECTION("cut off") {
    job.set_link(0, job.kServer, false);
    job.set_link(2, job.kServer, false);
    job.run_for(seconds(60));
    REQUIRE_RUNNING(job, "13");
    REQUIRE(job.node(0).exit_code == 75);
    REQUIRE(job.node(2).exit_code == 75);
  }
  SECTION("gone of its own will") {
    job.leave(0);
    job.run_for(seconds(30));
    REQUIRE_RUNNING(job, "123");
    REQUIRE(job.node(0).exit_code == 143);
  }
}

} // namespace ddp::test::rendezvous_scenarios_test
