#include <ddp/comm_hooks/default_hooks.h>

#include <ddp/comm_hooks/rounds.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/containers.h>
#include <ddp/support/plain_memory.h>

#include <algorithm>
#include <functional>

namespace ddp {

using c10::IValue;

struct DDP_LOCAL HookChain::Impl {
  std::vector<std::shared_ptr<CommHook>> hooks;
  detail::Rounds rounds; // last: its thread uses the others

  at::Tensor reduce(GradBucket bucket, const ProcessGroup& group) const {
    for (size_t i = 0; i < hooks.size(); ++i) {
      const auto future = i == 0
          ? hooks[i]->run(bucket, group) // the Reducer has scaled its input
          : detail::run_inner(*hooks[i], bucket, group);
      DDP_CHECK(future, "the communication hook returned no future");
      detail::wait_for(group, *future, "a communication hook of a chain");
      const auto result = detail::result_for(*future, bucket.buffer);
      detail::follow_default_stream(group, result.device());
      if (!result.is_same(bucket.buffer)) {
        // The next hook may read its memory.
        bucket = bucket.with_buffer(
            detail::with_plain_memory(result).contiguous().view({-1}));
      }
    }
    return bucket.buffer;
  }

  template <typename Get>
  IValue states(Get get) const {
    auto dict = detail::new_dict();
    for (size_t i = 0; i < hooks.size(); ++i) {
      const auto state = get(*hooks[i]);
      if (!state.isNone()) {
        dict.insert(std::to_string(i), state);
      }
    }
    return dict.empty() ? IValue() : IValue(dict);
  }

  static void check_same_hooks(bool same) {
    DDP_CHECK_VALUE(
        same, "HookChain: the state was saved by a chain of other hooks");
  }

  /// `load` gets None for a hook without state.
  template <typename Load>
  void load(const IValue& states, Load load) const {
    DDP_CHECK_VALUE(
        states.isNone() || states.isGenericDict(),
        "HookChain: the state was not saved by a HookChain");
    const auto dict =
        states.isNone() ? detail::new_dict() : states.toGenericDict();
    size_t known = 0;
    for (size_t i = 0; i < hooks.size(); ++i) {
      known += dict.contains(std::to_string(i)) ? 1 : 0;
    }
    check_same_hooks(known == dict.size());
    for (size_t i = 0; i < hooks.size(); ++i) {
      const auto found = dict.find(std::to_string(i));
      load(*hooks[i], found != dict.end() ? found->value() : IValue());
    }
  }
};

HookChain::HookChain(std::vector<std::shared_ptr<CommHook>> hooks)
    : impl_(std::make_unique<Impl>()) {
  DDP_CHECK_VALUE(!hooks.empty(), "HookChain: the list of hooks is empty");
  for (const auto& hook : hooks) {
    DDP_CHECK_VALUE(hook, "HookChain: a hook is null");
  }
  impl_->hooks = std::move(hooks);
}

HookChain::~HookChain() = default;

std::string HookChain::describe() const {
  std::string hooks;
  for (const auto& hook : impl_->hooks) {
    hooks += (hooks.empty() ? "" : ", ") + hook->describe();
  }
  return c10::str(CommHook::describe(), "(", hooks, ")");
}

bool HookChain::takes_scaled_gradients() const {
  return impl_->hooks.front()->takes_scaled_gradients();
}

bool HookChain::keeps_ranks_equal() const {
  const auto& hooks = impl_->hooks;
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return hook->keeps_ranks_equal();
  });
}

std::vector<std::shared_ptr<CommHook>> HookChain::inner_hooks() const {
  return impl_->hooks;
}

ProcessGroup HookChain::connect(const ProcessGroup& group) {
  return impl_->rounds.connect(group);
}

c10::intrusive_ptr<c10::ivalue::Future> HookChain::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  return impl_->rounds.run(
      bucket.buffer,
      group,
      [impl = impl_.get(), bucket](const ProcessGroup& own) {
        return impl->reduce(bucket, own);
      });
}

IValue HookChain::state_dict() const {
  return impl_->states([](CommHook& hook) { return hook.state_dict(); });
}

void HookChain::load_state_dict(const IValue& state) {
  std::vector<std::function<void()>> undo;
  impl_->load(state, [&](CommHook& hook, const IValue& own) {
    const auto before = hook.state_dict();
    Impl::check_same_hooks(before.isNone() == own.isNone());
    undo.push_back([&hook, before, of_rank = hook.rank_state_dict()] {
      hook.load_state_dict(before);
      if (!of_rank.isNone()) {
        hook.load_rank_state_dict(of_rank);
      }
    });
  });
  size_t loaded = 0;
  try {
    impl_->load(state, [&](CommHook& hook, const IValue& own) {
      hook.load_state_dict(own);
      ++loaded;
    });
  } catch (...) {
    for (size_t i = 0; i < loaded; ++i) {
      undo[i]();
    }
    throw;
  }
}

IValue HookChain::rank_state_dict() const {
  return impl_->states([](CommHook& hook) { return hook.rank_state_dict(); });
}

void HookChain::load_rank_state_dict(const IValue& state) {
  impl_->load(state, [](CommHook& hook, const IValue& own) {
    if (!own.isNone()) {
      hook.load_rank_state_dict(own);
    }
  });
}

} // namespace ddp
