// examples/embedding.cpp with several numbers of processes.
#include <tests/support/examples.h>

namespace ddp::test::embedding_test {

struct Result {
  double first_loss = 0;
  double loss = 0;
  double norm = 0;
  int touched = 0; // by any rank
  std::vector<int> touched_by_rank;
  std::string output;
};

Result train(int ranks, Words arguments, const std::string& steps = "25") {
  arguments.insert(arguments.end(), {"--steps", steps, "--batch-size", "20"});
  const auto output = output_of(example(ranks, "embedding", arguments));
  Result result;
  result.output = output;
  result.first_loss = std::stod(match(output, "step 1: loss (\\S+)")[0]);
  result.loss = std::stod(match(output, "step " + steps + ": loss (\\S+)")[0]);
  const auto all = match(
      output,
      "the embeddings of all ranks are equal: norm (\\S+), touched (\\d+) "
      "rows, gradients are (\\w+)");
  result.norm = std::stod(all[0]);
  result.touched = std::stoi(all[1]);
  const bool sparse =
      std::count(arguments.begin(), arguments.end(), "--sparse") > 0;
  REQUIRE(all[2] == (sparse ? "sparse" : "dense"));
  std::set<std::string> hashes;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = match(
        output,
        "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
            ": embedding (\\d+), touched (\\d+) of 1000 rows");
    hashes.insert(own[0]);
    result.touched_by_rank.push_back(std::stoi(own[1]));
  }
  REQUIRE(hashes.size() == 1);
  return result;
}

void check_near(const Result& result, const Result& expected) {
  CAPTURE(result.output, expected.output);
  CHECK(is_near(result.first_loss, expected.first_loss));
  CHECK(is_near(result.loss, expected.loss));
  CHECK(is_near(result.norm, expected.norm));
  CHECK(result.touched == expected.touched);
}

TEST_CASE("an embedding is trained by several processes as by one") {
  const auto alone = train(1, {});
  CHECK(alone.touched_by_rank[0] == alone.touched);
  for (int ranks : {2, 3}) {
    check_near(train(ranks, {}), alone);
  }
}

TEST_CASE("sparse gradients train an embedding as dense ones do") {
  const auto alone = train(1, {"--rnn", "gru"});
  for (int ranks : {1, 2, 3}) {
    const auto sparse = train(ranks, {"--rnn", "gru", "--sparse"});
    check_near(sparse, alone);
    CHECK((ranks == 1 || sparse.touched_by_rank[0] < sparse.touched));
  }
}

TEST_CASE("ranks that see no word in common keep one embedding") {
  const auto alone = train(1, {"--disjoint", "--rnn", "lstm"});
  for (const char* kind : {"--disjoint", "--sparse"}) {
    const auto together = train(3, {"--disjoint", "--rnn", "lstm", kind});
    check_near(together, alone);
    int sum = 0;
    for (const auto touched : together.touched_by_rank) {
      CHECK(touched > 0);
      sum += touched;
    }
    CHECK(sum == together.touched);
  }
}

TEST_CASE("an embedding learns") {
  for (const auto& [rnn, steps] :
       {std::pair("linear", "300"), {"gru", "700"}}) {
    const auto trained = train(2, {"--rnn", rnn}, steps);
    CAPTURE(trained.output);
    CHECK(trained.loss < 0.7 * trained.first_loss);
  }
}

TEST_CASE("a batch too small for the ranks is an error in one line") {
  CHECK_THAT(
      output_of(run(example(3, "embedding", {"--batch-size", "2"}), kLong), 1),
      Has("error: a batch of 2 sentences is too small for 3 "
          "ranks: pass --batch-size 3 or more"));
}

} // namespace ddp::test::embedding_test
