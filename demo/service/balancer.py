"""nginx before the nodes of a service: the machine's, or Debian's without a right of root."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from demo.debian_programs import find_debian_files
from demo.server_process import serve

_CONFIG = """
daemon off;
master_process off;
error_log stderr warn;
pid {folder}/nginx.pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_max_body_size 3m;
  client_body_temp_path {folder}/bodies;
  proxy_temp_path {folder}/answers;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream nodes {{
{nodes}
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://nodes;
      # The service refuses a Host that it is not asked by, and compares it with the origin of a page.
      proxy_set_header Host $http_host;
      proxy_connect_timeout 1s;
      proxy_read_timeout {answer_s}s;
    }}
  }}
}}
"""


def find_nginx(say: Callable[[str], None] = lambda _line: None) -> Path:
    """The program. ``say`` hears that it is fetched. RejectedError where there is none, and none can be fetched."""
    own = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if own is not None:
        return Path(own)
    return find_debian_files("nginx", ["nginx"], ["*/sbin/nginx"], say=say)[0]


@contextmanager
def run_balancer(ports: Sequence[int], folder: Path, *, answer_s: int = 30) -> Iterator[int]:
    """Pass requests on to nodes of this machine, in turns, and give the port that takes them.

    A node that does not answer within ``answer_s`` is left out for a second. RejectedError as by ``find_nginx``.
    """
    program = find_nginx()
    folder.mkdir(parents=True, exist_ok=True)

    def command(port: int) -> Sequence[str]:
        nodes = "\n".join(f"    server 127.0.0.1:{each} max_fails=1 fail_timeout=1s;" for each in ports)
        config = folder / "nginx.conf"
        text = _CONFIG.format(folder=folder, nodes=nodes, port=port, answer_s=answer_s)
        config.write_text(text, encoding="utf-8")
        return [str(program), "-p", str(folder), "-c", str(config)]

    with serve(command, folder / "nginx.log", {}) as port:
        yield port
