document.documentElement.classList.add("scripted");
const sort = document.getElementById("sort"), gallery = document.querySelector(".gallery");
if (sort && gallery) sort.addEventListener("change", () => {
  const [name, sign] = sort.value.split(":");
  [...gallery.children]
    .sort((a, b) => Number(sign) * (Number(a.dataset[name]) - Number(b.dataset[name])))
    .forEach(card => gallery.append(card));
});
