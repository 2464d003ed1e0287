// The states behind the explorer, as `casual_mcp_nb/widgets/selection.py` and `search.py` make them.

export interface ManifestState {
  text?: string;
  tokens: number;
  tools: number;
}

export interface SelectionState {
  manifest: ManifestState;
}

export interface ExplorerState {
  selection: SelectionState;
}
