// Must not compile: objects without a name are destroyed before they do
// anything.
#include <ddp/amp.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/elastic.h>
#include <ddp/reducer.h>
#include <torch/nn/modules/linear.h>

void attach(const torch::nn::Linear& net, const ddp::ProcessGroup& group) {
  ddp::Reducer(net, group);
  ddp::DistributedDataParallel<torch::nn::Linear>(net, group);
  ddp::StopSignal(group, {15});
  ddp::AutocastGuard(torch::kCPU, torch::kBFloat16);
}
