#pragma once

#include <chrono>

namespace ddp {
struct ElasticPage;
}

/// The pauses in which ddprun changes the group of a rank of `ddp::elastic`
/// (see ElasticPage). If there is no ddprun, or a job of one node, no one asks
/// for any. All functions are for any thread.
namespace ddp::detail::elastic_pause {

/// Takes ddprun's memory; null for none.
void attach(ElasticPage* page) noexcept;

/// From now on, or no longer, this rank can be asked.
void set_possible(bool possible) noexcept;
/// Whether it ever will be.
bool may_come() noexcept;

/// Whether a pause was asked for that this rank has not begun.
bool is_asked() noexcept;
/// The same, after up to `time`; at once where none can come.
bool is_asked_within(std::chrono::milliseconds time) noexcept;
/// How long a rank whose peers are gone waits for that.
std::chrono::milliseconds loss_patience() noexcept;
/// How long a rank that is asked may go on to its next step.
std::chrono::milliseconds step_patience() noexcept;

/// Ends this rank's waits for other ranks, in all groups, until the pause.
void end_waits() noexcept;
bool waits_are_ended() noexcept;

/// Says that this rank is in no group any more, and returns when the pause is
/// over, with the variables of the next group in the environment. Not while
/// other threads read that.
void make();

} // namespace ddp::detail::elastic_pause
