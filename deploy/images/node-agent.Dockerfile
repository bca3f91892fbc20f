# The node agent's image, for both architectures at once:
#
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/images/node-agent.Dockerfile \
#     --build-arg VERSION=v0.1.0 -t REGISTRY/gpuplan-node-agent:v0.1.0 --push .
#
# The agent opens NVML, which the NVIDIA container runtime mounts, so it needs cgo and
# glibc. It is compiled with the glibc of the base image; a C compiler for the other
# architecture takes the place of emulation. Both base images can be replaced by a mirror,
# and pinned by digest, with --build-arg.
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG BASE_IMAGE=gcr.io/distroless/base-debian12:nonroot

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN case "$TARGETARCH" in \
      "$(go env GOARCH)") packages= ;; \
      arm64) packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;; \
      amd64) packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;; \
    esac; \
    if [ -n "$packages" ]; then apt-get update && apt-get install -y --no-install-recommends $packages; fi
WORKDIR /src
ENV GOCACHE=/go/build
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY GNUmakefile ./
COPY internal internal
COPY nodeagent nodeagent
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build \
    case "$TARGETARCH" in arm64) cc=aarch64-linux-gnu-gcc ;; amd64) cc=x86_64-linux-gnu-gcc ;; esac; \
    GOFLAGS=-trimpath CGO_ENABLED=1 CC=$cc GOOS=$TARGETOS GOARCH=$TARGETARCH make bin/gpuplan-node-agent VERSION=$VERSION

FROM ${BASE_IMAGE}
COPY --from=build /src/bin/gpuplan-node-agent /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/gpuplan-node-agent"]
