// What --dry-run shows, and what it and reports hide.
#include <tests/support/catch_plain.h>

#include <launcher/cli/redaction.h>
#include <tests/launcher/launched_job.h>

namespace ddp::test::dry_run_test {

TEST_CASE("names that hold secrets are known", "[unit]") {
  for (const std::string& name :
       words("HF_TOKEN WANDB_API_KEY --api-key aws_secret_access_key "
             "DbPassword GOOGLE_APPLICATION_CREDENTIALS TOKENIZER_API_KEY")) {
    CAPTURE(name);
    CHECK(names_secret(name));
  }
  for (const char* name :
       {"TOKENIZERS_PARALLELISM", "--tokenizer", "PATH", "--epochs", ""}) {
    CAPTURE(name);
    CHECK_FALSE(names_secret(name));
  }
}

TEST_CASE("secrets in a command line are hidden", "[unit]") {
  CHECK(
      redacted_arguments(
          words("./train --api-key abc --x-token=def password=ghi "
                "--env=HF_TOKEN=jkl= --use-key --lr 0.1 --keys -1 "
                "--db=pg://me:secret@host/db http://host/a:b@c")) ==
      words("./train --api-key *** --x-token=*** password=*** "
            "--env=HF_TOKEN=*** --use-key --lr 0.1 --keys -1 "
            "--db=pg://me:***@host/db http://host/a:b@c"));
}

TEST_CASE("a rank's command line is shown", "[unit]") {
  CHECK(
      describe_rank(
          "rank 0 of 2",
          {"./train", "it's", "a b", "", "--token", "t"},
          {{"RANK", "0"}, {"NOTE", "a b"}, {"HF_TOKEN", "abc"}},
          nullptr) ==
      "# rank 0 of 2\n"
      "env RANK=0 NOTE='a b' HF_TOKEN='***' ./train 'it'\\''s' 'a b' '' "
      "--token '***'\n");
  RankPlace place;
  CPU_ZERO(&place.cpus);
  for (const int cpu : {0, 1, 2, 5, 7, 8}) {
    CPU_SET(cpu, &place.cpus);
  }
  place.memory_nodes = {0, 1};
  CHECK(
      describe_rank("rank 1 of 2", {"./train"}, {{"RANK", "1"}}, &place) ==
      "# rank 1 of 2, CPUs 0-2,5,7-8, memory of nodes 0-1\n"
      "env RANK=1 ./train\n");
}

TEST_CASE("a shell reads a word as it was", "[unit]") {
  CHECK(shell_word("a-b_c./,:=+@%9") == "a-b_c./,:=+@%9");
  for (const char* text : {"a b", "$x", "*", "'", "", "#", "~", "a\nb", "!"}) {
    const std::string word = shell_word(text);
    CAPTURE(word);
    CHECK(word.front() == '\'');
    CHECK(word.back() == '\'');
  }
}

TEST_CASE("--dry-run runs nothing", "[unit]") {
  LaunchedJob job(
      words("--dry-run --nproc-per-node 3 --master-port 0 /bin/false "
            "r${local_rank}"));
  CHECK(job.wait() == 0);
  CHECK(count_of(job.out(), "# rank ") == 3);
  for (const char* rank : {"0", "1", "2"}) {
    CHECK_THAT(job.out(), Has(std::string(" RANK=") + rank));
    CHECK_THAT(job.out(), Has(std::string("/bin/false r") + rank));
  }
  CHECK(count_of(job.out(), "DDP_STORE_FD") == 0);
}

TEST_CASE("--dry-run shows the ranks of this node", "[unit]") {
  LaunchedJob job(
      words("--dry-run --nproc-per-node=2 --nnodes=3 --node-rank=1 "
            "--rdzv-endpoint=node0 /bin/false"));
  CHECK(job.wait() == 0);
  CHECK_THAT(job.out(), Has("# rank 3 of 6\n"));
  CHECK_THAT(job.out(), Has(" GROUP_RANK=1 GROUP_WORLD_SIZE=3 "));
}

TEST_CASE("ddprun refuses to be one of several tasks", "[unit]") {
  JobSetup setup;
  setup.environment = {
      "OMPI_COMM_WORLD_RANK=1",
      "OMPI_COMM_WORLD_SIZE=2",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2"};
  LaunchedJob refused({"/bin/true"}, setup);
  CHECK(refused.wait() == 2);
  CHECK_THAT(refused.err(), Has("one of 2 tasks"));
  LaunchedJob alone(words("--standalone /bin/true"), setup);
  CHECK(alone.wait() == 0);
}

} // namespace ddp::test::dry_run_test
