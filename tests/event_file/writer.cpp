// Writes event files of two runs, of which the second resumes the first at step
// 20, into the named folder.
#include <examples/cifar10_resnet/event_file.h>

#include <limits>

int main(int, char** argv) {
  {
    EventFile events(argv[1], 0);
    for (int64_t step = 10; step <= 30; step += 10) {
      events.add("train/loss", step, 1.0 / static_cast<double>(step));
    }
    events.add("diverged", 10, std::numeric_limits<double>::quiet_NaN());
    events.flush();
  }
  EventFile events(argv[1], 20);
  events.add("train/loss", 20, -2);
  events.add("far", int64_t{1} << 40, 1e30);
  events.flush();
}
