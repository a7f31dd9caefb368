// Loaded before the first paint and no module, so that a dark page never flashes light.
try {
    const theme = localStorage.getItem('forge.theme');
    if (theme) document.documentElement.dataset.theme = theme;
    if (localStorage.getItem('forge.sidebar') === 'closed') document.documentElement.dataset.sidebar = 'closed';
} catch {
    // Storage is forbidden: the system's theme is used.
}
