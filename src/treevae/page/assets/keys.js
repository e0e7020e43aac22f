// The keyboard: arrows move in the tree, Enter folds, Escape closes.

export function listenToKeys(bundle, state, tree, panel) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey
      || event.target.closest("input, select, textarea, dialog[open]")) return;
    const inTree = event.target.closest("#tree, body > :not(main)") || event.target === document.body;
    const act = {
      "?": () => document.getElementById("help").showModal(),
      "+": () => document.querySelector("#tools button").click(),
      "=": () => document.querySelector("#tools button").click(),
      "-": () => document.querySelectorAll("#tools button")[1].click(),
      0: () => tree.fit(true),
      "[": () => state.cut(Math.max(1, state.groups.length - 1)),
      "]": () => state.cut(Math.min(bundle.leaves.length, state.groups.length + 1)),
      Escape: () => panel.close(),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    } else if (inTree && event.key.startsWith("Arrow")) {
      event.preventDefault();
      const to = tree.neighbour(state.selected, event.key);
      if (to !== null) state.select(to, state.opened);
      tree.focus(state.selected);
    } else if (event.key === "Enter" && event.target.closest("#viewport")) {
      event.preventDefault();
      state.fold(state.selected);
      tree.focus(state.selected);
    }
  });
}
