"use strict";
// Airflow's own choice of light or dark, also inside its frame; without one the system's is taken.
const theme = localStorage.getItem("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
// A frame may not leave itself: Airflow's router opens its own pages around it.
addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (!link || parent === self || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  parent.history.pushState(null, "", link.href);
  parent.dispatchEvent(new PopStateEvent("popstate"));
});
