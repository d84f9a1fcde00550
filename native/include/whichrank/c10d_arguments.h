// What the arguments of a c10d operator mean, for the c10d sensor: which stand where, and how an operation is filled from
// them. Positions are read from the schema, so that a new argument does not shift them; values are looked at where they
// lie, so that no call pays for a copy.
#ifndef WHICHRANK_C10D_ARGUMENTS_H
#define WHICHRANK_C10D_ARGUMENTS_H

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <string>

#include "whichrank/ring.h"

namespace whichrank {

struct Operator {
  const char* name;
  uint8_t kind;
};

constexpr Operator kOperators[] = {
    {"allreduce_", WR_ALL_REDUCE},
    {"broadcast_", WR_BROADCAST},
    {"reduce_", WR_REDUCE},
    {"allgather_", WR_ALL_GATHER},
    {"_allgather_base_", WR_ALL_GATHER},
    {"reduce_scatter_", WR_REDUCE_SCATTER},
    {"_reduce_scatter_base_", WR_REDUCE_SCATTER},
    {"alltoall_base_", WR_ALL_TO_ALL},
    {"alltoall_", WR_ALL_TO_ALL},
    {"gather_", WR_GATHER},
    {"scatter_", WR_SCATTER},
    {"barrier", WR_BARRIER},
    {"monitored_barrier_", WR_MONITORED_BARRIER},
    {"allreduce_coalesced_", WR_ALL_REDUCE_COALESCED},
    {"allgather_coalesced_", WR_ALL_GATHER_COALESCED},
    {"allgather_into_tensor_coalesced_", WR_ALL_GATHER_COALESCED},
    {"reduce_scatter_tensor_coalesced_", WR_REDUCE_SCATTER_COALESCED},
    {"send", WR_SEND},
    {"recv_", WR_RECV},
    {"recv_any_source_", WR_RECV_ANY},
};
constexpr size_t kOperatorCount = sizeof kOperators / sizeof *kOperators;

struct Places { // argument positions, -1 where the operator has none
  int8_t group = -1, input = -1, output = -1, reduce_op = -1, peer = -1, tag = -1, async_op = -1, timeout = -1;
  int8_t split_in = -1, split_out = -1;
  uint8_t count = 0;
};

inline Places places[kOperatorCount];

inline void read_schema(size_t id) {
  auto handle =
      c10::Dispatcher::singleton().findSchema({std::string("c10d::") + kOperators[id].name, ""});
  if (!handle) return; // this torch has no such operator: its kernel is never called
  Places& p = places[id];
  const auto& arguments = handle->schema().arguments();
  p.count = static_cast<uint8_t>(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    const auto at = static_cast<int8_t>(i);
    if (name == "process_group") p.group = at;
    else if (name == "reduce_op") p.reduce_op = at;
    else if (name == "root_rank" || name == "dst" || name == "src") p.peer = at;
    else if (name == "tag") p.tag = at;
    else if (name == "async_op") p.async_op = at;
    else if (name == "timeout") p.timeout = at;
    else if (name == "input_split_sizes") p.split_in = at;
    else if (name == "output_split_sizes") p.split_out = at;
    else if (name.rfind("output", 0) == 0) p.output = at;
    else if (name.rfind("input", 0) == 0 || name == "tensors" || name == "tensor") p.input = at;
  }
}

/* hot */

// Of what carries a timeout; 0 where there is none. Longer ones than 49 days are said to be 49 days.
inline uint32_t as_ms(int64_t ms) { return static_cast<uint32_t>(std::clamp<int64_t>(ms, 0, UINT32_MAX)); }

struct Sizes {
  uint64_t elements = 0, hash = 0;
  int dtype = -1;
  c10::DeviceType device = c10::DeviceType::CPU;
  uint32_t tensors = 0;

  void add(const at::Tensor& t) {
    if (!t.defined()) return;
    const auto n = static_cast<uint64_t>(t.numel());
    elements += n;
    hash = (hash ^ n) * UINT64_C(0x100000001b3) + 1;
    if (dtype < 0) {
      dtype = static_cast<int>(t.scalar_type());
      device = t.device().type();
    }
    ++tensors;
  }
  void add(const c10::IValue& v) {
    if (v.isTensor()) add(v.toTensor());
    else if (v.isList()) for (const c10::IValue& x : v.toListRef()) add(x); // where they lie: no reference is taken
  }
};

inline uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * UINT64_C(0x9e3779b97f4a7c15) + (h >> 29); }

// A scatter's input is the root's alone, and a list to gather into says the sizes of all: what all members have alike there
// is the output.
inline bool counts_output(uint8_t kind, bool lists) { return kind == WR_SCATTER || (kind == WR_ALL_GATHER && lists); }

// What must agree among all members, by kind; 0 where it cannot be said by one number (uneven all-to-all, send/recv).
inline uint64_t signature_of(const wr_op& op, const Sizes& in) {
  uint64_t h = mix(op.kind, op.dtype);
  switch (op.kind) {
    case WR_BARRIER:
    case WR_MONITORED_BARRIER:
      return mix(op.kind, 1);
    case WR_ALL_TO_ALL:
      return op.flags & WR_FLAG_UNEVEN ? 0 : mix(h, in.elements);
    case WR_GATHER:
    case WR_SCATTER:
      return mix(mix(h, op.count), static_cast<uint32_t>(op.peer));
    case WR_ALL_GATHER:
      return mix(h, op.count);
    case WR_REDUCE_SCATTER:
      return mix(mix(h, op.reduce_op), op.count);
    case WR_SEND:
    case WR_RECV:
    case WR_RECV_ANY:
      return mix(op.dtype + 1, in.elements);
    default:
      return mix(mix(mix(h, in.tensors > 1 ? in.hash : in.elements), op.reduce_op), static_cast<uint32_t>(op.peer));
  }
}

// The object of a custom class, without the name comparison of toCustomClass: the schema says what it is.
template <typename T>
c10::intrusive_ptr<T> object_of(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<T>(value.toObjectRef().getSlot(0).toCapsule());
}

struct Splits { // as many as a row holds
  int64_t in[WR_SPLITS], out[WR_SPLITS];
};

// In elements. The operator has them in rows of its tensor, or as a list with a tensor for each member.
inline size_t copy_splits(const c10::IValue& list, const c10::IValue& tensor, int64_t* to) {
  const c10::ArrayRef<c10::IValue> given = list.toListRef();
  const at::Tensor& whole = tensor.toTensor();
  const int64_t rows = whole.dim() ? whole.size(0) : 0, row = rows ? whole.numel() / rows : 1;
  for (size_t i = 0; i < given.size() && i < WR_SPLITS; ++i) to[i] = given[i].toInt() * row;
  return given.size();
}

inline size_t copy_sizes(const c10::IValue& tensors, int64_t* to) {
  const c10::ArrayRef<c10::IValue> given = tensors.toListRef();
  for (size_t i = 0; i < given.size() && i < WR_SPLITS; ++i) to[i] = given[i].toTensor().numel();
  return given.size();
}

inline void fill_op(wr_op& op, const Operator& kind, const Places& p, const c10::IValue* arguments, const Sizes& in,
             const Sizes& out, Splits& splits, uint32_t default_timeout_ms) {
  op.kind = kind.kind;
  const int8_t list = kind.kind == WR_ALL_GATHER || kind.kind == WR_GATHER ? p.output : p.input;
  const bool lists = list >= 0 && arguments[list].isList() && !arguments[list].isTensorList();
  op.count = counts_output(kind.kind, lists) ? out.elements : in.elements;
  op.out_count = out.elements;
  op.dtype = static_cast<uint8_t>(in.dtype < 0 ? (out.dtype < 0 ? 255 : out.dtype) : in.dtype);
  op.reduce_op = 255;
  if (p.reduce_op >= 0)
    op.reduce_op = static_cast<uint8_t>(
        static_cast<c10d::ReduceOp::RedOpType>(*object_of<c10d::ReduceOp>(arguments[p.reduce_op])));
  op.peer = p.peer >= 0 ? static_cast<int32_t>(arguments[p.peer].toInt()) : -1;
  op.tag = p.tag >= 0 ? static_cast<uint32_t>(arguments[p.tag].toInt()) : 0;
  if (p.async_op >= 0 && arguments[p.async_op].toBool()) op.flags |= WR_FLAG_ASYNC;
  const int64_t timeout = p.timeout >= 0 ? arguments[p.timeout].toInt() : -1;
  op.timeout_ms = timeout > 0 ? as_ms(timeout) : default_timeout_ms;
  if (kind.kind == WR_ALL_TO_ALL) {
    const bool of_rows = p.split_in >= 0;
    const size_t in_count = of_rows ? copy_splits(arguments[p.split_in], arguments[p.input], splits.in)
                                    : copy_sizes(arguments[p.input], splits.in);
    const size_t out_count = of_rows ? copy_splits(arguments[p.split_out], arguments[p.output], splits.out)
                                     : copy_sizes(arguments[p.output], splits.out);
    if (in_count || out_count) op.flags |= WR_FLAG_UNEVEN;
    const size_t n = std::min(in_count, out_count);
    if (n > WR_SPLITS) op.flags |= WR_FLAG_SPLITS_CUT;
    op.splits = static_cast<uint32_t>(n); // wr_op_begin reads at most WR_SPLITS
    op.split_in = splits.in;
    op.split_out = splits.out;
  }
  op.signature = signature_of(op, in);
}

/* end hot */

} // namespace whichrank

#endif
