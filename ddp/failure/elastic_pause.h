#pragma once

#include <chrono>

namespace ddp {
struct ElasticPage;
}

/// The pauses in which ddprun changes the group of a rank of `ddp::elastic`
/// (see ElasticPage). Without ddprun, or in a job of one node, no pauses occur.
/// All functions are thread-safe.
namespace ddp::detail::elastic_pause {

/// Sets the memory shared with ddprun; null means no memory.
void attach(ElasticPage* page) noexcept;

/// Sets whether ddprun may request pauses of this rank.
void set_possible(bool possible) noexcept;
/// Whether ddprun may ever request a pause.
bool may_come() noexcept;

/// Whether ddprun may request a pause of this rank now.
bool is_possible() noexcept;

/// Whether ddprun has requested a pause that this rank has not begun.
bool is_asked() noexcept;
/// Waits up to `time` for a request; returns immediately if ddprun cannot
/// request a pause.
bool is_asked_within(std::chrono::milliseconds time) noexcept;
/// How long a rank whose peers have ended waits for a request.
std::chrono::milliseconds loss_patience() noexcept;
/// How long a rank may take to reach its next step after a request.
std::chrono::milliseconds step_patience() noexcept;

/// Ends this rank's waits for other ranks, in all groups, until the pause.
void end_waits() noexcept;
bool waits_are_ended() noexcept;

/// Reports that this rank has left its group, and returns when the pause is
/// over. The variables of the next group are then in the environment. No other
/// thread may read the environment meanwhile.
void make();

} // namespace ddp::detail::elastic_pause
