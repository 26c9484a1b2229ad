# The image of one rank. `docker build -t shoal .`; then, with the demo model at http://127.0.0.1:8100:
#   docker run --rm -p 127.0.0.1:8100:8100 -e SHOAL_API_KEY=$(openssl rand -hex 24) shoal
# docs/install.md has more, and packaging/examples/compose.yaml two ranks in two containers.

FROM debian:bookworm-slim AS build
WORKDIR /src
COPY tools/setup.sh tools/
RUN tools/setup.sh && apt-get install -y --no-install-recommends libibverbs-dev
COPY . .
RUN make -j"$(nproc)" && make install prefix=/usr DESTDIR=/installed

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl libcjson1 libcurl4 \
        libevent-2.1-7 libevent-openssl-2.1-7 libpcre2-8-0 libssl3 libutf8proc2 libnghttp2-14 libprotobuf-c1 \
        libyaml-0-2 libedit2 libibverbs1 ibverbs-providers && \
    rm -rf /var/lib/apt/lists/* && \
    groupadd --system --gid 10001 shoal && \
    useradd --system --uid 10001 --gid shoal --create-home --home-dir /var/lib/shoal shoal
COPY --from=build /installed/usr/bin/shoal /usr/bin/shoal
COPY --from=build /installed/usr/lib/shoal /usr/lib/shoal
COPY --from=build /installed/usr/share/shoal /usr/share/shoal
USER shoal
WORKDIR /var/lib/shoal
# Models by name are kept in this volume.
ENV HF_HOME=/var/lib/shoal/huggingface SHOAL_HOST=0.0.0.0
VOLUME /var/lib/shoal
EXPOSE 8100 8200
STOPSIGNAL SIGTERM
# A worker has no API: its compose file or manifest disables this.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10m \
    CMD curl -fsS -o /dev/null "http://127.0.0.1:${SHOAL_PORT:-8100}/health" || exit 1
ENTRYPOINT ["/usr/bin/shoal"]
CMD ["serve"]
