// Options for the nodes of a job and their rendezvous.
#include <tests/support/catch_plain.h>

#include <common/scheduler/rank_environment.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::nodes_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

NodeOptions nodes_of(
    const std::string& line,
    const std::map<std::string, std::string>& environment = {}) {
  return parse(words(line + " x"), environment).nodes;
}

const std::string kTwo = "--nnodes=2 --rdzv-endpoint=node0";

NodeOptions two_nodes(const std::string& more = "") {
  return nodes_of(kTwo + " " + more);
}

TEST_CASE("a job has one node unless it is said", "[unit]") {
  for (const std::string line :
       {"",
        "--nnodes=1",
        "--nnodes=1:1 --node-rank=0",
        "--rdzv-backend=etcd --rdzv-endpoint=localhost:0",
        "--rdzv-conf=is_host=1,a=b --token=/nowhere"}) {
    const LaunchOptions options = parse(words(line + " x"));
    CHECK_FALSE(options.nodes.several());
    CHECK(options.nodes.host.empty());
    CHECK(options.notes.empty());
    CHECK(options.run_id.empty());
  }
  check_refused("--node-rank=1 x", "0, since the job has one node");
}

TEST_CASE("nodes are counted", "[unit]") {
  CHECK(two_nodes().least == 2);
  CHECK(two_nodes().most == 2);
  const NodeOptions elastic = two_nodes("--nnodes=1:16384");
  CHECK(elastic.least == 1);
  CHECK(elastic.most == 16384);
  for (const std::string& wrong : words("0 3:2 16385 1:16385 2: :2 a")) {
    check_refused(
        "--nnodes " + wrong + " --rdzv-endpoint=h x", "--nnodes is '");
  }
}

TEST_CASE("an endpoint is a host and a port", "[unit]") {
  const auto endpoint = [](const std::string& text) {
    const NodeOptions nodes = two_nodes("--rdzv-endpoint " + text);
    return std::make_pair(nodes.host, nodes.port);
  };
  using Endpoint = std::pair<std::string, int>;
  CHECK(endpoint("node0") == Endpoint("node0", 29400));
  CHECK(endpoint("node0:1") == Endpoint("node0", 1));
  CHECK(endpoint("10.9.0.1:65535") == Endpoint("10.9.0.1", 65535));
  CHECK(endpoint("[::1]:2") == Endpoint("::1", 2));
  CHECK(endpoint("[fd00::2]") == Endpoint("fd00::2", 29400));
  CHECK(endpoint("fd00::2") == Endpoint("fd00::2", 29400));
  for (const std::string& wrong :
       words(":29400 h: h:0 h:65536 h:a [::1 [::1]2 "
             "[]:2 [::1]: 0.0.0.0 [::]:2 :: http://h:2 h/a")) {
    check_refused(
        "--nnodes=2 --rdzv-endpoint " + wrong + " x", "--rdzv-endpoint is '");
  }
}

TEST_CASE("the backend says who serves the meeting", "[unit]") {
  CHECK_FALSE(two_nodes().hosts_log.has_value());
  CHECK_FALSE(two_nodes("--node-rank=1").hosts_log.has_value());
  CHECK(two_nodes("--rdzv-conf=is_host=1").hosts_log == true);
  CHECK(two_nodes("--rdzv-conf=is_host=False").hosts_log == false);
  const std::string fixed = "--rdzv-backend=static";
  CHECK_FALSE(two_nodes(fixed).hosts_log.has_value());
  CHECK(two_nodes(fixed + " --node-rank=0").hosts_log == true);
  CHECK(two_nodes(fixed + " --node-rank=1").hosts_log == false);
  CHECK(two_nodes(fixed + " --nnodes=1:3").least == 3);
  const NodeOptions served =
      two_nodes("--rdzv-backend=etcd --rdzv-endpoint=a,[::1]:7,10.0.0.1");
  CHECK(served.hosts_log == false);
  REQUIRE(served.etcd.size() == 3);
  CHECK(served.etcd[0].host == "a");
  CHECK(served.etcd[0].port == 2379);
  CHECK(served.etcd[1].host == "::1");
  CHECK(served.etcd[1].port == 7);
  check_refused(
      kTwo + " --rdzv-backend=etcd --rdzv-conf is_host=true x",
      "cannot be combined");
  check_refused(kTwo + " --rdzv-endpoint=a,b x", "--rdzv-backend etcd");
  check_refused(
      "--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=http://a x", "not a URL");
  const auto notes_of = [](const std::string& options) {
    return parse(words("--nnodes=2 --rdzv-endpoint=a:2379 " + options)).notes;
  };
  REQUIRE(notes_of("x").size() == 1);
  CHECK_THAT(notes_of("x")[0], Has("needs --rdzv-backend etcd"));
  CHECK(notes_of("--rdzv-backend=etcd x").empty());
  check_refused("--nnodes=2 --rdzv-backend=etcd x", "etcd's members");
  check_refused(kTwo + " --rdzv-backend=etcd-v2 x", "c10d, etcd or static");
  for (const char* wrong : {"cert=c", "key=k", "user=u", "password_file=p"}) {
    check_refused(
        kTwo + " --rdzv-backend=etcd --rdzv-conf=" + wrong + " x",
        "user=... with password_file=...");
  }
}

TEST_CASE("node 0's address is an endpoint, too", "[unit]") {
  const LaunchOptions options =
      parse({"--nnodes=3", "--node-rank=2", "--master-addr=node0", "x"});
  CHECK(options.nodes.host == "node0");
  CHECK(options.nodes.port == 29500);
  CHECK(options.nodes.rank == 2);
  CHECK(options.nodes.hosts_log == false);
  CHECK(options.master_addr == "127.0.0.1"); // for one-node jobs
  const NodeOptions first = nodes_of(
      "--node-rank=0",
      {{"PET_NNODES", "3"},
       {"PET_MASTER_ADDR", "node0"},
       {"PET_MASTER_PORT", "7"}});
  CHECK(first.port == 7);
  CHECK(first.hosts_log == true);
  CHECK(nodes_of("--nnodes=2 --master-addr=n --rdzv-endpoint=m").host == "m");
  check_refused("--nnodes=2 --master-addr=node0 x", "--node-rank N");
}

TEST_CASE("a node's number is below their count", "[unit]") {
  CHECK(two_nodes().rank == -1);
  CHECK(two_nodes("--node-rank=1").rank == 1);
  CHECK(two_nodes("--nnodes=1:2 --node-rank=5").rank == 5);
  for (const std::string& wrong : words("2 -1 a")) {
    check_refused(
        kTwo + " --node-rank " + wrong + " x", "a whole number from 0 to 1");
  }
}

TEST_CASE("it must be known where nodes meet", "[unit]") {
  for (const char* line :
       {"--nnodes=2 x",
        "--nnodes=1:2 --node-rank=1 x",
        "--nnodes=2 --rdzv-backend=c10d x",
        "--nnodes=2 --rdzv-endpoint= x"}) {
    check_refused(
        line,
        "the rendezvous endpoint is not set: use --rdzv-endpoint HOST:PORT");
  }
  check_refused(
      kTwo + " --standalone x", "--nnodes and --standalone cannot be combined");
}

TEST_CASE("times of the meeting", "[unit]") {
  const NodeOptions usual = two_nodes();
  CHECK(usual.node_timeout == seconds(10));
  CHECK(usual.last_call == seconds(3));
  CHECK(usual.join_timeout == seconds(600));
  const NodeOptions own =
      two_nodes("--node-timeout=1.5 --last-call=0 --join-timeout 30");
  CHECK(own.node_timeout == milliseconds(1500));
  CHECK(own.last_call == seconds(0));
  CHECK(own.join_timeout == seconds(30));
  const std::string conf = "--rdzv-conf=join_timeout=5,last_call_timeout=7";
  CHECK(two_nodes(conf).join_timeout == seconds(5));
  CHECK(two_nodes(conf).last_call == seconds(7));
  CHECK(two_nodes(conf + " --join-timeout=6").join_timeout == seconds(6));
  CHECK(two_nodes("--rdzv-conf=timeout=900").join_timeout == seconds(900));
  check_refused("--node-timeout=0.9 x", "at least 1");
}

TEST_CASE("torchrun's settings of the meeting are known", "[unit]") {
  const LaunchOptions known = parse(words(
      kTwo +
      " --rdzv-conf=read_timeout=60,close_timeout=30,heartbeat_timeout=5,keep_"
      "alive_interval=5,keep_alive_max_attempt=3,store_type=tcp x"));
  CHECK(known.notes.empty());
  const LaunchOptions odd = parse(words(kTwo + " --rdzv-conf=speed=9 x"));
  REQUIRE(odd.notes.size() == 1);
  CHECK_THAT(odd.notes[0], Has("--rdzv-conf speed has no effect"));
  for (const std::string& wrong :
       words("is_host=2 is_host=no join_timeout=soon store_type=file")) {
    check_refused(kTwo + " --rdzv-conf " + wrong + " x", "--rdzv-conf ");
    parse(words("--rdzv-conf " + wrong + " x")); // it has no effect
  }
}

TEST_CASE("where a node listens", "[unit]") {
  const NodeOptions nodes =
      two_nodes("--bind=eth1 --local-addr 10.9.0.1 --port-range=29500-29600");
  CHECK(nodes.bind == "eth1");
  CHECK(nodes.local_address == "10.9.0.1");
  CHECK(nodes.first_port == 29500);
  CHECK(nodes.last_port == 29600);
  for (const std::string& wrong : words("2-1 0-5 5 5- -5 1-65536 a-b")) {
    check_refused("--port-range=" + wrong + " x", "--port-range is '");
  }
}

TEST_CASE("the job's secret is a file's or a variable's", "[unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "token";
  const std::string option = "--token=" + path;
  const auto allow = [&](std::filesystem::perms permissions) {
    std::filesystem::permissions(path, permissions);
  };
  using std::filesystem::perms;
  write_text(path, "  a secret \r\nmore\n");
  allow(perms::owner_read);
  CHECK(two_nodes(option).token == "a secret");
  const std::map<std::string, std::string> variable = {{"DDP_TOKEN", "other"}};
  CHECK(parse(words(kTwo + " x"), variable).nodes.token == "other");
  CHECK(
      parse(words(kTwo + " " + option + " x"), variable).nodes.token ==
      "a secret");
  CHECK(two_nodes().token.empty());
  for (const perms others : {perms::group_read, perms::others_write}) {
    allow(perms::owner_read | others);
    check_refused(kTwo + " " + option + " x", "other users can access it");
  }
  allow(perms::owner_read);
  constexpr uid_t other = 65534;
  if (chown(path.c_str(), other, static_cast<gid_t>(-1)) == 0) { // as root
    check_refused(
        kTwo + " " + option + " x",
        "it belongs to user 65534, who can access it; run chown");
  }
  write_text(folder / "empty", " \nsecret\n");
  std::filesystem::permissions(folder / "empty", perms::owner_read);
  check_refused(
      kTwo + " --token=" + folder / "empty" + " x", "first line is empty");
  check_refused(kTwo + " --token=/nowhere/token x", "No such file");
}

TEST_CASE("ranks do not inherit the secret", "[unit]") {
  const char* inherited[] = {"DDP_TOKEN=s", "HOME=/", nullptr};
  CHECK(worker_environment({}, inherited) == Texts{"HOME=/"});
}

TEST_CASE("the name of a job is the same on all nodes", "[unit]") {
  CHECK(parse(words(kTwo + " x")).run_id == "none"); // as torchrun's
  CHECK(parse(words(kTwo + " --rdzv-id=job x")).run_id == "job");
}

} // namespace ddp::test::nodes_test
