// The meaning of command lines.
#include <tests/support/catch_plain.h>

#include <tests/launcher/option_parsing.h>

namespace ddp::test::options_test {

TEST_CASE("options take dashes and underscores alike", "[unit]") {
  for (const Texts& form :
       {Texts{"--nproc-per-node", "3"},
        Texts{"--nproc_per_node", "3"},
        Texts{"--nproc_per-node", "3"},
        Texts{"--nproc-per-node=3"},
        Texts{"--nproc", "3"},
        Texts{"--nproc_per=3"},
        Texts{"--nproc-per-node", "2", "--nproc-per-node", "3"},
        Texts{"--nproc_per_node=3", "--no-python"},
        Texts{"--no_python", "--nproc-per-node", "3"}}) {
    Texts arguments = form;
    arguments.push_back("./train");
    CAPTURE(form);
    const LaunchOptions options = parse(arguments);
    CHECK(options.nproc_per_node == 3);
    CHECK(options.command == Texts{"./train"});
  }
}

TEST_CASE("options have torchrun's defaults", "[unit]") {
  const LaunchOptions options = parse({"./train"});
  CHECK(options.nproc_per_node == 1);
  CHECK(options.nodes.most == 1);
  CHECK(options.grace == std::chrono::seconds(30));
  CHECK(options.master_addr == "127.0.0.1");
  CHECK(options.master_port == 0);
  CHECK(options.role == "default");
  CHECK(options.max_restarts == 0);
  CHECK(options.kind == ProgramKind::kDetect);
  CHECK_FALSE(options.output.line_prefix);
  CHECK(options.output.tee.of(0) == 0);
  CHECK(options.notes.empty());
}

TEST_CASE("options end at the program", "[unit]") {
  const Texts program = {"./train", "--nproc-per-node", "9", "--", "--help"};
  Texts arguments = {"--grace", "0.25", "--master_port=29500"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  const LaunchOptions options = parse(arguments);
  CHECK(options.command == program);
  CHECK(options.nproc_per_node == 1);
  CHECK(options.grace == std::chrono::milliseconds(250));
  CHECK(options.master_port == 29500);
  CHECK(parse({"--", "--odd", "x"}).command == Texts{"--odd", "x"});
  CHECK(parse({"--", "--", "x"}).command == Texts{"--", "x"});
  CHECK(parse({"-m", "package", "-m"}).command == Texts{"package", "-m"});
}

TEST_CASE("help and version are answers", "[unit]") {
  CHECK_THAT(parse({"--help"}).answer, Has("--nproc-per-node"));
  CHECK_THAT(parse({"-h", "--nonsense"}).answer, Has("Usage"));
  CHECK_THAT(parse({"--version"}).answer, Has("ddprun "));
}

TEST_CASE("wrong usage is told in one line", "[unit]") {
  for (const char* line :
       {"",
        "--",
        "''",
        "--nproc-per-node 2",
        "--nproc-per-node",
        "--nproc-per-node --standalone x",
        "--log-dir --standalone x",
        "--log-dir -m x",
        "--nproc-per-node 0 x",
        "--nproc-per-node -1 x",
        "--nproc-per-node 2.5 x",
        "--nproc-per-node two x",
        "--nproc-per-node 99999999999 x",
        "--nproc-per-node= x",
        "--standalone=1 x",
        "--grace -1 x",
        "--grace nan x",
        "--grace 1s x",
        "--master-port 65536 x",
        "--max-restarts -1 x",
        "--nnodes 0 x",
        "--nnodes 2:1 x",
        "--node-rank 1 x",
        "--redirects 4 x",
        "-r 0:1, x",
        "-t 3,0:1 x",
        "-t 0:1,4-2:1 x",
        "--local-ranks-filter 0,a x",
        "--local-ranks-filter 0-65536 x",
        "--local-ranks-filter 0-65535,0-65535 x", // more ranks than a node has
        "--numa-binding cores x",
        "--master-addr 0.0.0.0 x", // no rank can connect to these
        "--master-addr :: x",
        "--output tty x",
        "--env NAME x",
        "--env =x x",
        "--env RANK=1 x",
        "--nnodes=2 --rdzv-endpoint=h --rdzv-conf timeout x",
        "-z x",
        "--nonsense x"}) {
    check_refused(line, "(see ddprun --help)");
  }
}

TEST_CASE("--env names the option that sets the variable", "[unit]") {
  const std::map<std::string, std::string> options{
      {"GROUP_RANK", "--node-rank"},
      {"GROUP_WORLD_SIZE", "--nnodes"},
      {"LOCAL_WORLD_SIZE", "--nproc-per-node"},
      {"MASTER_ADDR", "--master-addr"},
      {"MASTER_PORT", "--master-port"},
      {"ROLE_WORLD_SIZE", "--nproc-per-node"},
      {"WORLD_SIZE", "--nproc-per-node"}};
  for (const auto& [name, option] : options) {
    check_refused("--env " + name + "=1 x", "sets " + name + ", see " + option);
  }
}

TEST_CASE("options of other launchers are answered by ours", "[unit]") {
  const std::map<std::string, std::string> habits{
      {"-n", "--nproc-per-node"},
      {"-N", "--nnodes"},
      {"-H", "--hosts"},
      {"--num_gpus", "--nproc-per-node"},
      {"--num_machines", "--nnodes"},
      {"--machinefile", "--hostfile"},
      {"-x", "--env"},
      {"--allow-run-as-root", "not needed"},
      {"--gpus", "--nproc-per-node"},
      {"--nprocs", "--nproc-per-node"},
      {"--ntasks", "--nproc-per-node"},
      {"--ntasks-per-node", "--nproc-per-node"},
      {"-c", "OMP_NUM_THREADS=N, or --env OMP_NUM_THREADS=N"},
      {"--omp", "OMP_NUM_THREADS=N, or --env OMP_NUM_THREADS=N"},
      {"--devices",
       "CUDA_VISIBLE_DEVICES=LIST, or --env CUDA_VISIBLE_DEVICES=LIST"},
      {"--start_timeout", "DDP_TIMEOUT=SECONDS"},
      {"--oversubscribe", "not needed"}};
  for (const auto& [theirs, ours] : habits) {
    CAPTURE(theirs);
    CHECK_THAT(
        usage_error_of({theirs, "2", "x"}),
        Has("unknown option " + theirs + "; ") &&
            Has("it is " + ours + " here"));
  }
}

TEST_CASE("a name is none, one or several options", "[unit]") {
  check_refused("--wallpaper x", "unknown option --wallpaper");
  check_refused(
      "--check x",
      "unknown option --check; it is the example check_nodes here");
  check_refused(
      "--rdzv-e h --rdzv_ x",
      "--rdzv_ could be one of --rdzv-endpoint, --rdzv-backend, --rdzv-id, "
      "--rdzv-conf");
}

TEST_CASE("streams are chosen for all or for some local ranks", "[unit]") {
  const LaunchOptions all = parse({"-r3", "--tee", "1", "x"});
  CHECK(all.output.redirects.of(17) == 3);
  CHECK(all.output.tee.of(0) == 1);
  const LaunchOptions some = parse({"-t", "0:1,10-12:3", "-r=1:2", "x"});
  CHECK(some.output.tee.of(0) == 1);
  CHECK(some.output.tee.of(1) == 0);
  CHECK(some.output.tee.of(9) == 0);
  CHECK(some.output.tee.of(10) == 3);
  CHECK(some.output.tee.of(12) == 3);
  CHECK(some.output.tee.of(13) == 0);
  CHECK(some.output.redirects.of(1) == 2);
  CHECK(
      parse({"--nproc", "8", "--local-ranks-filter", "0,4-6", "x"})
          .output.shown_ranks == std::set<int>{0, 4, 5, 6});
}

TEST_CASE("output options mean what they say", "[unit]") {
  const OutputOptions output =
      parse(words("--log-dir logs --tee 3 --output pty "
                  "--log-line-prefix '- ${rank} ' --duplicate-stdout-filters "
                  "a,,b,c, --duplicate_stderr_filters=error x"))
          .output;
  CHECK(output.log_dir == "logs");
  CHECK(output.mode == OutputMode::kPty);
  CHECK(output.line_prefix == "- ${rank} ");
  CHECK(output.stdout_filters == Texts{"a,b", "c"});
  CHECK(output.stderr_filters == Texts{"error"});
  CHECK(parse({"--output", "raw", "x"}).output.mode == OutputMode::kRaw);
}

TEST_CASE("an empty prefix is a prefix", "[unit]") {
  const std::map<std::string, std::string> environment = {
      {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank}>"}};
  const OutputOptions given =
      parse({"--log-line-prefix=", "x"}, environment).output;
  CHECK(given.line_prefix == "");
  CHECK(parse({"x"}, environment).output.line_prefix == "<${rank}>");
}

TEST_CASE("placement options mean what they say", "[unit]") {
  const LaunchOptions options =
      parse(words("--bind-to core-complex --env A=1=2 --env=B= x"));
  CHECK(options.binding == Binding::kCoreComplex);
  using Variables = std::vector<std::pair<std::string, std::string>>;
  CHECK(options.env == Variables{{"A", "1=2"}, {"B", ""}});
  CHECK(parse({"--numa-binding", "share", "x"}).binding == Binding::kShare);
}

TEST_CASE("the kind of program follows from the options", "[unit]") {
  CHECK(parse({"-m", "x"}).kind == ProgramKind::kModule);
  CHECK(parse({"--no-python", "x"}).kind == ProgramKind::kExecutable);
  CHECK(parse({"--no-python", "--run-path", "x"}).kind == ProgramKind::kScript);
  check_refused("-m --no_python x", "-m and --no_python cannot be combined");
}

TEST_CASE("raw output excludes what ddprun does to output", "[unit]") {
  for (const std::string& option :
       words("--redirects=3 --tee=1 --log-line-prefix=x --local-ranks-filter=0 "
             "--duplicate-stdout-filters=x --duplicate-stderr-filters=x")) {
    CAPTURE(option);
    check_refused(option + " --output raw x", "cannot be combined");
  }
}

TEST_CASE("--standalone ignores where nodes would meet", "[unit]") {
  const LaunchOptions options = parse(
      words("--standalone --master-addr elsewhere --master-port=29500 "
            "--rdzv-id=id --rdzv-endpoint elsewhere:29400 --node-rank=3 x"));
  CHECK(options.standalone);
  CHECK(options.master_addr == "127.0.0.1");
  CHECK(options.master_port == 0);
  CHECK(options.run_id.empty());
}

TEST_CASE("each rank needs a GPU where it sees its own alone", "[unit]") {
  const Texts arguments = {
      "--nproc-per-node", "3", "--virtual-local-rank", "x"};
  CHECK_THAT(
      usage_error_of(arguments, {{"CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"}}),
      Has("3 ranks, but"));
  CHECK_THAT(
      usage_error_of(arguments, {{"CUDA_VISIBLE_DEVICES", ""}}),
      Has("0 GPUs are visible"));
}

TEST_CASE(
    "options of torchrun without effect are noted if they mislead",
    "[unit]") {
  const LaunchOptions silent = parse(
      words("--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id=job1 "
            "--rdzv-conf=timeout=9,is_host=1 --start-method=fork "
            "--monitor-interval=5 --event-log-handler=null x"));
  CHECK(silent.notes.empty());
  CHECK(silent.run_id == "job1");
  const LaunchOptions noted =
      parse(words("--event-log-handler=console --logs-specs=mine "
                  "--signals-to-handle=SIGTERM,SIGUSR1 "
                  "--local-ranks-filter=5 x"));
  REQUIRE(noted.notes.size() == 4);
  CHECK_THAT(noted.notes[0], Has("console has no effect"));
  CHECK_THAT(noted.notes[1], Has("mine has no effect"));
  CHECK_THAT(noted.notes[2], Has("SIGTERM,SIGUSR1 has no effect"));
  CHECK_THAT(noted.notes[3], Has("no output is shown"));
}

TEST_CASE("a number of ranks that the program gets is noted", "[unit]") {
  for (const char* line :
       {"./train --nproc-per-node 3", "./train 1 --nproc_per_node=3"}) {
    const LaunchOptions options = parse(words(line));
    REQUIRE(options.notes.size() == 1);
    CHECK_THAT(
        options.notes[0],
        Has("--nproc-per-node follows ./train") && Has("one rank is started"));
  }
  const auto nested = "--nproc-per-node 2 ./train --nproc-per-node 3";
  CHECK(parse(words(nested)).notes.empty());
}

TEST_CASE("options of torchrun 2.11 are known", "[unit]") {
  for (const std::string& argument : words(
           "--nnodes=1 --nproc_per_node=2 --rdzv_backend=c10d "
           "--rdzv_endpoint=localhost:0 --rdzv_id=a --rdzv_conf=a=b "
           "--standalone --max_restarts=1 --monitor_interval=1 "
           "--start_method=spawn --event_log_handler=null --role=a --module "
           "--no_python --run_path --log_dir=a --redirects=3 --tee=3 "
           "--local_ranks_filter=0 --duplicate_stdout_filters=a "
           "--duplicate_stderr_filters=a --node_rank=0 --master_addr=a "
           "--master_port=1 --local_addr=a --logs_specs=a --numa_binding=node "
           "--signals_to_handle=SIGTERM --virtual_local_rank")) {
    CAPTURE(argument);
    CHECK(usage_error_of({argument, "x"}) == "no error");
    std::string dashes = argument;
    std::replace(dashes.begin(), dashes.end(), '_', '-');
    CHECK(usage_error_of({dashes, "x"}) == "no error");
  }
}

} // namespace ddp::test::options_test
