const root = document.documentElement;
root.classList.add("scripted");
const sort = document.getElementById("sort"), gallery = document.querySelector(".gallery");
if (sort && gallery) sort.addEventListener("change", () => {
  const [name, sign] = sort.value.split(":");
  [...gallery.children]
    .sort((a, b) => Number(sign) * (Number(a.dataset[name]) - Number(b.dataset[name])))
    .forEach(card => gallery.append(card));
});
const opacity = document.getElementById("opacity");
if (opacity) opacity.addEventListener("input", () => root.style.setProperty("--opacity", opacity.value));
const larger = document.getElementById("larger");
const enlarge = event => {  // the map and its image, side by side; the address then names the card
  const stage = event.target.closest(".shown .stage");
  if (!stage) return;
  event.preventDefault();  // or the same Enter closes what it opens
  const card = stage.closest(".card"), maps = stage.closest(".maps"), beside = larger.querySelector("div");
  const figures = new Set([card.querySelector(".plain"), stage.closest("figure")]);
  beside.className = maps.className;
  beside.replaceChildren(...[...figures].map(figure => figure.cloneNode(true)));
  larger.style.cssText = card.style.cssText;
  history.replaceState(null, "", `#${card.id}`);
  larger.showModal();
};
if (larger) {
  document.querySelectorAll(".shown .stage").forEach(stage => Object.assign(stage, {tabIndex: 0, role: "button"}));
  document.addEventListener("click", enlarge);
  document.addEventListener("keydown", event => ["Enter", " "].includes(event.key) && enlarge(event));
  larger.addEventListener("click", event => event.target === larger && larger.close());
}
