// Does not compile: a Reducer without a name reduces nothing.
#include <ddp/reducer.h>

void attach(torch::nn::Module& module, const ddp::ProcessGroup& group) {
  ddp::Reducer(module, group);
}
