"""The paper's two schematic figures, drawn again as diagrams that the page shows."""

FRAMEWORK = """```mermaid
flowchart LR
  x["image x"] --> n1["network 1"] & nS["network S"]
  n1 --> z1["logits z¹"] --> g1["probabilities g¹"]
  nS --> zS["logits zˢ"] --> gS["probabilities gˢ"]
  g1 & gS --> U["uncertainty U: total, aleatoric, epistemic"]
  U -. "shares of classes (Eq. 4)" .-> g["U of g"]
  g -. "softmax share, tau1 (Eq. 5, 7)" .-> z["U of z, each network"]
  z -. "relevance maps, tau2 (Eq. 9, 10)" .-> M["map M(x), sums to U"]
```

Solid: how the uncertainty is computed; dotted: how it is traced back. [architecture.md](architecture.md) has the code's
own picture.
"""
MITIGATION = """```mermaid
flowchart LR
  few["few labelled images"] --> e["ensemble"] --> M["maps M(x)"]
  M --> A["attention A = (1 - M) M"]
  few --> c["convolutions of a new network"] --> h["features h"]
  A --> w["(1 + alpha A) h"]
  h --> w --> d["dense layers"] --> y["classes"]
```

At test time there is no attention.
"""
SCHEMES = {"figure-framework": FRAMEWORK, "figure-mitigation": MITIGATION}
