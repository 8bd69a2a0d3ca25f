// The device's modelled clock: when the work of each stream starts and ends, in nanoseconds since
// the program began. Nothing here waits; work has been done by then, on the host's time.
#pragma once

#include "core/stream.h"

namespace vgpu {

// When work that is submitted to the stream now may start: after all work that comes before it.
u64 ready_ns(const Stream& stream, bool legacy);
// The stream's last work ends then.
void finish_at(Stream& stream, bool legacy, u64 ns);
// The host has waited for what ends then.
void host_reaches(u64 ns);
// The end of all work of all streams.
u64 last_ns();

// Times cost time: launches are not looked at before the first event is recorded that can be asked
// for one.
void want_times();
bool times_are_wanted();

// While a host thread does a piece of work (submit), the time at which it starts, and then ends.
u64& work_ns();
// Moves that time on: by so long, after waiting until so large a share of the device is free. A
// kernel that fills the device runs alone; small ones of different streams run side by side.
void pass_ns(u64 ns, double share);

// The nodes of a graph follow each other sooner than launches into a stream.
class InGraph {
 public:
  InGraph();
  ~InGraph();
  InGraph(const InGraph&) = delete;
};
u64 launch_gap_ns();

}  // namespace vgpu
