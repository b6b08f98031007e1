// misbehaving crash|throw|hang: after some steps rank 1 does that, while the
// others go on.

#include <ddp/process_group.h>
#include <torch/torch.h>

#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>

namespace misbehaving {

[[gnu::noinline]] void lose_the_way() {
  raise(SIGSEGV);
  asm volatile(""); // or the call above would be a jump, and no frame
}

[[gnu::noinline]] void wait_for_nobody() {
  for (;;) {
    pause();
  }
}

void misbehave(const std::string& how) {
  if (how == "crash") {
    lose_the_way();
  } else if (how == "hang") {
    wait_for_nobody();
  }
  throw std::runtime_error("rank 1 has had enough");
}

} // namespace misbehaving

int main(int argc, char** argv) {
  auto group = ddp::init_process_group();
  auto sum = torch::ones({1000});
  for (int step = 0;; ++step) {
    if (step == 3 && group.rank() == 1) {
      misbehaving::misbehave(argc > 1 ? argv[1] : "throw");
    }
    group.all_reduce(sum);
  }
}
