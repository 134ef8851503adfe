// SPDX-License-Identifier: Apache-2.0
// What a chipset_graph handle points to: a captured sequence (stream.h) or a compiled ONNX model.
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

enum class GraphKind { kCaptured, kOnnx };

struct Graph {
  explicit Graph(GraphKind graph_kind) : kind(graph_kind) {}
  virtual ~Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const GraphKind kind;
};

inline Graph* as_graph(chipset_graph handle) { return reinterpret_cast<Graph*>(handle); }
inline chipset_graph as_handle(Graph* graph) { return reinterpret_cast<chipset_graph>(graph); }

}  // namespace chipset::cpu
