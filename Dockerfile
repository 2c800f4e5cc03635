# Images of Waybill's programs: docker build --target broker|sidecar|operator|cli -t waybill-broker:0.1.0 .
# Each is from scratch: the program without its debugging data, the libraries that it is linked with, and an account. Nothing is fetched
# but what cargo fetches. Without Docker, scripts/images makes the same images of what cargo has built.

# Any image with Rust 1.90 or newer, a C compiler and binutils.
ARG BUILDER=rust:1-bookworm

FROM ${BUILDER} AS build
WORKDIR /waybill
COPY . .
RUN cargo build --locked --release --bins -p waybill-broker -p waybill-sidecar -p waybill-operator -p waybill
# A root folder for each program.
RUN set -eu; \
    for program in waybill-broker waybill-sidecar waybill-operator waybill; do \
        root="/roots/$program"; \
        mkdir -p "$root/etc" "$root/data"; \
        chown 65532:65532 "$root/data"; \
        mkdir -m 1777 "$root/tmp"; \
        echo 'waybill:x:65532:65532::/:/sbin/nologin' >"$root/etc/passwd"; \
        echo 'waybill:x:65532:' >"$root/etc/group"; \
        echo 'hosts: files dns' >"$root/etc/nsswitch.conf"; \
        strip -o "$root/$program" "target/release/$program"; \
        for library in $(ldd "target/release/$program" | grep -o '/[^ ]*'); do \
            mkdir -p "$root$(dirname "$library")"; \
            cp -L "$library" "$root$library"; \
        done; \
    done

FROM scratch AS broker
COPY --from=build /roots/waybill-broker /
USER 65532:65532
EXPOSE 10911 10915
ENTRYPOINT ["/waybill-broker"]

FROM scratch AS sidecar
COPY --from=build /roots/waybill-sidecar /
USER 65532:65532
EXPOSE 8081 8082
ENTRYPOINT ["/waybill-sidecar"]

FROM scratch AS operator
COPY --from=build /roots/waybill-operator /
USER 65532:65532
EXPOSE 9443 10925
ENTRYPOINT ["/waybill-operator"]

FROM scratch AS cli
COPY --from=build /roots/waybill /
USER 65532:65532
ENTRYPOINT ["/waybill"]
