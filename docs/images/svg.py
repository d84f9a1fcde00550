"""Terminal text as an SVG that needs no font from elsewhere: rich's export with a template of our own."""

from __future__ import annotations

from rich.console import Console

FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
  <style>
    .{unique_id}-matrix {{
      font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
      font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
    }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix" xml:space="preserve">
    {matrix}
    </g>
  </g>
</svg>
"""


def recording(width: int, height: int = 50) -> Console:
    """A console that keeps what is printed on it."""
    import io

    return Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )


def svg_of(console: Console, title: str, unique_id: str) -> str:
    """What was printed, as SVG text that is the same for the same text."""
    return console.export_svg(title=title, code_format=FORMAT, unique_id=unique_id)
